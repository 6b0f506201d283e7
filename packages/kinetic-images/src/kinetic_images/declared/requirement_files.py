"""Requirements files: text with its includes → requirements, constraints and options."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

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
    reader = _Reader(read, environ or {})
    reader.file(file, constraint=False, via=None)
    indexes = [
        option
        for option in (*reader.constraint_options, *reader.options)
        if option.name == "--index-url"
    ]
    options: list[Option] = []
    # Options of constraints files, which uv ignores and pip does not, come after those of requirements files.
    for option in (*reader.options, *reader.constraint_options):
        if option.name == "--index-url":
            options += [option] if option is indexes[-1] else []  # The last one counts.
        # A later one of these may change the effect of an earlier one.
        elif option.name in _PACKAGE_OPTIONS or option not in options:
            options.append(option)
    return RequirementSet(
        requirements=tuple(dict.fromkeys(reader.requirements)),
        constraints=tuple(dict.fromkeys(reader.constraints)),
        options=tuple(options),
        local=tuple(dict.fromkeys(reader.local)),
        notes=tuple(reader.notes),
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


@dataclass
class _Reader:
    """Collect the contents of one file and its includes."""

    read: Read
    environ: Mapping[str, str]
    requirements: list[Requirement] = field(default_factory=list)
    constraints: list[Requirement] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    constraint_options: list[Option] = field(default_factory=list)
    local: list[LocalRequirement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: dict[tuple[str, bool], None] = field(default_factory=dict)

    def file(self, file: str, *, constraint: bool, via: Place | None) -> None:
        # Read each file once, even if it includes itself or several files include it.
        if (file, constraint) in self.seen:
            return
        self.seen[(file, constraint)] = None
        try:
            text = decoded(self.read(file))
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
        for number, written, comment in joined_lines(text):
            place = Place(file, number)
            line = expanded(written, self.environ)
            if line.startswith("-"):
                self.option_line(line, place, constraint=constraint)
            elif (local := parse_local(line, place)) is not None:
                self.take_local(local, constraint=constraint)
            else:
                keep = KEEP_MARK in comment.split()
                target = self.constraints if constraint else self.requirements
                target.append(parse_requirement(line, place, keep=keep))

    def take_local(self, local: LocalRequirement, *, constraint: bool) -> None:
        if constraint:
            raise DependencyError(
                f"{local.place}: {local.text!r} is a path, which cannot be a constraint.",
                hint="Write NAME==VERSION or NAME @ URL.",
            )
        self.local.append(local)

    def option_line(self, line: str, place: Place, *, constraint: bool) -> None:
        if editable := _EDITABLE.fullmatch(line):
            self.editable(editable[1].strip(), place, line, constraint=constraint)
            return
        for name, value in _options_of(line, place):
            if name in _INCLUDES:
                self.include(name, value, place, constraint=constraint)
            elif name in _FLAGS:
                self.option(name, "", place, constraint=constraint)
            elif name in _OPTIONS:
                required = _required_value(name, value, place)
                self.option(_OPTIONS[name], required, place, constraint=constraint)
            elif name in _IGNORED:
                self.notes.append(f"{place}: {name} was ignored: {_IGNORED[name]}.")
            else:
                raise DependencyError(
                    f"{place}: the option {name} is not supported.",
                    hint="Remove the line. Index options, -r, -c, -e and hashes are supported.",
                )

    def option(self, name: str, value: str, place: Place, *, constraint: bool) -> None:
        if name == "--find-links" and "://" not in value and not value.startswith("file:"):
            value = _beside(place, value)
        options = self.constraint_options if constraint else self.options
        if name in _PACKAGE_OPTIONS:
            packages = (package.strip() for package in value.split(","))
            options += [Option(name, package, place) for package in packages if package]
        else:
            options.append(Option(name, value, place))

    def include(self, name: str, value: str, place: Place, *, constraint: bool) -> None:
        if "://" in _required_value(name, value, place):
            raise DependencyError(
                f"{place}: {name} {without_secrets(value)} includes a file from the network, "
                "which is not read.",
                hint="Download it beside this file and include it by its name.",
            )
        is_constraint = constraint or _INCLUDES[name] == "-c"
        self.file(_beside(place, value), constraint=is_constraint, via=place)

    def editable(self, value: str, place: Place, line: str, *, constraint: bool) -> None:
        # Use shlex only to remove the quotes of a path with blanks.
        unquoted = " ".join(shlex.split(value)) if value[:1] in ("'", '"') else value
        local = parse_local(_required_value("-e", unquoted, place), place, editable=True, line=line)
        if local is not None:
            self.take_local(local, constraint=constraint)
        else:
            # Nobody edits the checkout where the function runs, so it need not be editable.
            target = self.constraints if constraint else self.requirements
            target.append(parse_requirement(unquoted, place))


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
