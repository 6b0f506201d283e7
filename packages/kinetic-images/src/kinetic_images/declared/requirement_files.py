"""Requirements files: text with its includes → requirements, constraints and options."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kinetic_images.credentials import without_credentials, without_secrets
from kinetic_images.declared.requirements import (
    KEEP_MARK,
    LocalRequirement,
    Place,
    Requirement,
    expanded,
    parse_local,
    parse_requirement,
)
from kinetic_images.errors import DependencyError

_T = TypeVar("_T")
Read = Callable[[str], bytes]
"""Returns the bytes of the file with the given name, or raises `OSError`."""


@dataclass(frozen=True)
class Option:
    """A global option of a requirements file, in its long form."""

    name: str
    value: str = ""
    place: Place = field(compare=False, default=Place("", 0))

    @property
    def line(self) -> str:
        """The option as a line of a requirements file, credentials included."""
        return f"{self.name} {self.value}".rstrip()

    @property
    def canonical(self) -> str:
        """The line that is printed and digested: without credentials."""
        return without_credentials(self.line)


@dataclass(frozen=True)
class RequirementSet:
    """The contents of one or several files, in order."""

    requirements: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    options: tuple[Option, ...] = ()
    local: tuple[LocalRequirement, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about what was ignored, with the reason."""


_OPTIONS: Final = {
    "-i": "--index-url",
    "--index-url": "--index-url",
    "--pypi-url": "--index-url",
    "--extra-index-url": "--extra-index-url",
    "-f": "--find-links",
    "--find-links": "--find-links",
    "--no-binary": "--no-binary",
    "--only-binary": "--only-binary",
    "--trusted-host": "--trusted-host",
}
_INDEX: Final = "--index-url"
_FLAGS: Final = frozenset({"--no-index", "--pre", "--require-hashes"})
_IGNORED: Final = {
    "--prefer-binary": "uv prefers wheels anyway",
    "--use-feature": "only pip has this option",
}
_INCLUDES: Final = {
    "-r": "-r",
    "--requirement": "-r",
    "--requirements": "-r",
    "-c": "-c",
    "--constraint": "-c",
    "--constraints": "-c",
}
_EDITABLE: Final = re.compile(r"(?:-e|--editable)(?:\s+|=|(?=[^\s=-]))(.*)")
_JOINED: Final = re.compile(r"-[ircf](?=[^\s=-])")  # -rother.txt
_PACKAGE_OPTIONS: Final = frozenset({"--no-binary", "--only-binary"})
_COMMENT: Final = re.compile(r"(?:^|\s+)#(.*)$")


def read_requirements(
    file: str, read: Read, environ: Mapping[str, str] | None = None
) -> RequirementSet:
    """Read the requirements file *file* and all files that it includes.

    *read* gets the name of an included file joined to the folder of the file that includes it. As in
    pip, `${NAME}` in capital letters is replaced by that variable of *environ*, if it is set.

    Raises:
        DependencyError: A line cannot be understood, or a file cannot be read.
    """
    found = [*_contents(file, read, environ or {}, set())]

    def all_of(kind: type[_T], limits: bool) -> list[_T]:
        return [each for each, limiting in found if isinstance(each, kind) and limiting is limits]

    # Options of constraints files, which uv ignores and pip does not, come after those of requirements files.
    options, limits = all_of(Option, False), all_of(Option, True)
    index = next((each for each in reversed((*limits, *options)) if each.name == _INDEX), None)
    chosen: list[Option] = []
    for option in (*options, *limits):
        if option.name == _INDEX:
            chosen += [option] if option is index else []  # The last one counts.
        # A later one of these may change the effect of an earlier one.
        elif option.name in _PACKAGE_OPTIONS or option not in chosen:
            chosen.append(option)
    return RequirementSet(
        requirements=tuple(dict.fromkeys(all_of(Requirement, False))),
        constraints=tuple(dict.fromkeys(all_of(Requirement, True))),
        options=tuple(chosen),
        local=tuple(dict.fromkeys(all_of(LocalRequirement, False))),
        notes=tuple(each for each, _ in found if isinstance(each, str)),
    )


def decoded(data: bytes) -> str:
    """Return the text of a file: UTF-8, or UTF-16 if it has a byte order mark."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def joined_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Iterate over (number of the first line, joined text, comment) of lines that are not empty.

    As in pip, a backslash joins a line to the next one, a line that is only a comment ends the joined
    line, and comments are removed after joining.
    """
    start, joined = 0, ""
    for number, line in enumerate([*re.split(r"\r\n|\r|\n", text), ""], 1):
        only_comment = line.lstrip().startswith("#")
        start = start or number
        if line.endswith("\\") and not only_comment:
            joined += line.rstrip("\\")
            continue
        joined += f" {line}" if only_comment else line
        comment = _COMMENT.search(joined)
        body = joined[: comment.start()] if comment else joined
        if body.strip():
            yield start, body.strip(), comment[1] if comment else ""
        start, joined = 0, ""


def _contents(
    file: str,
    read: Read,
    environ: Mapping[str, str],
    seen: set[tuple[str, bool]],
    *,
    limits: bool = False,
    via: Place | None = None,
) -> Iterator[tuple[Requirement | LocalRequirement | Option | str, bool]]:
    """Iterate over what *file* and its includes contain, and notes; each with whether it is in a constraints file.

    *seen* has the files that were read, so that each is read once, even if it includes itself. *via* is the line that
    includes the file, and *limits* whether that line makes it a constraints file.
    """
    if (file, limits) in seen:
        return
    seen.add((file, limits))
    for number, written, comment in joined_lines(read_text(file, read, via)):
        place, line = Place(file, number), expanded(written, environ)
        editable = _EDITABLE.fullmatch(line)
        if line.startswith("-") and not editable:
            for name, value in _options_of(line, place):
                if name in _INCLUDES:
                    inner = _included(name, value, place)
                    constrains = limits or _INCLUDES[name] == "-c"
                    yield from _contents(inner, read, environ, seen, limits=constrains, via=place)
                elif name in _IGNORED:
                    yield f"{place}: {name} was ignored: {_IGNORED[name]}.", limits
                else:
                    yield from ((option, limits) for option in _named_options(name, value, place))
            continue
        body = editable[1].strip() if editable else line
        if editable:
            # Use shlex only to remove the quotes of a path with blanks.
            body = " ".join(shlex.split(body)) if body[:1] in ("'", '"') else body
            _required_value("-e", body, place)
        local = parse_local(body, place, editable=bool(editable), line=line)
        if local is None:
            # Nobody edits a checkout where the function runs, so it need not be editable.
            yield parse_requirement(body, place, keep=KEEP_MARK in comment.split()), limits
        elif limits:
            raise DependencyError(
                f"{local.place}: {local.text!r} is a path, which cannot be a constraint.",
                hint="Write NAME==VERSION or NAME @ URL.",
            )
        else:
            yield local, limits


def read_text(file: str, read: Read, via: Place | None = None) -> str:
    """Return the text of *file*, which the line *via* includes.

    Raises:
        DependencyError: It cannot be read.
    """
    try:
        return decoded(read(file))
    except OSError as error:
        subject = f"{via}: the included file {file}" if via else file
        raise DependencyError(
            f"{subject} cannot be read: {error.strerror or error}.",
            hint="An included name is relative to the file that includes it."
            if via
            else "Check that it is a file that you may read.",
        ) from error
    except UnicodeDecodeError as error:
        raise DependencyError(
            f"{file} is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8."
        ) from error


def _named_options(name: str, value: str, place: Place) -> Iterator[Option]:
    """Iterate over the global options that one option of a file stands for: some name several packages."""
    if name in _FLAGS:
        yield Option(name, "", place)
        return
    if name not in _OPTIONS:
        raise DependencyError(
            f"{place}: the option {name} is not supported.",
            hint="Remove the line. Index options, -r, -c, -e and hashes are supported.",
        )
    _required_value(name, value, place)
    long = _OPTIONS[name]
    if long == "--find-links" and "://" not in value and not value.startswith("file:"):
        value = _beside(place, value)
    values = map(str.strip, value.split(",")) if long in _PACKAGE_OPTIONS else [value]
    yield from (Option(long, each, place) for each in values if each)


def _included(name: str, value: str, place: Place) -> str:
    """Return the name of the file that an option includes."""
    if "://" in _required_value(name, value, place):
        raise DependencyError(
            f"{place}: {name} {without_secrets(value)} includes a file from the network, "
            "which is not read.",
            hint="Download it beside this file and include it by its name.",
        )
    return _beside(place, value)


def _options_of(line: str, place: Place) -> Iterator[tuple[str, str]]:
    """Split a line of options into names and values: `-i URL --extra-index-url URL` has two."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise DependencyError(
            f"{place}: {without_secrets(line)!r} cannot be read: {error}.",
            hint="Close the quotation.",
        ) from None
    while words:
        word = words.pop(0)
        if _JOINED.match(word):
            yield word[:2], word[2:]
            continue
        name, equals, value = word.partition("=")
        if not name.startswith("-"):
            raise DependencyError(
                f"{place}: {without_secrets(word)!r} is not allowed after an option.",
                hint="Put options and requirements on lines of their own.",
            )
        if not equals and name not in _FLAGS and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield name, value


def _required_value(name: str, value: str, place: Place) -> str:
    if not value:
        raise DependencyError(f"{place}: {name} needs a value.", hint=f"Write {name} VALUE.")
    return value


def _beside(place: Place, value: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(place.file), value))
