"""Requirements: one line of text → one normalised requirement with its file and line."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as _Parsed
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from kinetic_images.credentials import without_credentials, without_secrets
from kinetic_images.errors import DependencyError

KEEP_MARK: Final = "kn:keep"
"""In a comment at the end of a line: this requirement is never filtered out."""


@dataclass(frozen=True, order=True)
class Place:
    """A file and line, for messages; *file* is the name under which the file was read."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One requirement, normalised."""

    name: str
    """The canonical name; empty for a URL without a name."""
    extras: tuple[str, ...] = ()
    specifier: str = ""
    url: str | None = None
    """A direct URL or VCS address, as written."""
    marker: str | None = None
    hashes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Options of this requirement other than hashes (`--config-settings=…`); only pip has them."""
    source: str | None = None
    """Its entry in `[tool.uv.sources]` as TOML, unless *url* contains the whole entry."""
    keep: bool = False
    """Marked `# kn:keep`."""
    place: Place = field(compare=False)

    @property
    def line(self) -> str:
        """The requirement as one line for an installer, credentials included, without *source*."""
        head = self.name
        if self.extras:
            head += f"[{','.join(self.extras)}]"
        if self.url is not None:
            head = f"{head} @ {self.url}" if head else self.url
        else:
            head += self.specifier
        if self.marker:
            head += f" ; {self.marker}"
        return " ".join([head, *(f"--hash={digest}" for digest in self.hashes)])

    @property
    def canonical(self) -> str:
        """The line that is printed and digested: without credentials, with the keep mark."""
        line = f"{self.line} from {self.source}" if self.source else self.line
        line = without_credentials(line)
        return f"{line} # {KEEP_MARK}" if self.keep else line

    def applies(self, environment: Mapping[str, str]) -> bool:
        """Return whether the marker may hold in *environment*; see `marker_holds`."""
        return marker_holds(self.marker, environment)


@dataclass(frozen=True, kw_only=True)
class LocalRequirement:
    """A path on this machine in place of a requirement: `-e .`, `./wheel.whl`, `../library`."""

    path: str
    """Absolute, or relative to the folder of the file that was read first, also in included files."""
    extras: tuple[str, ...] = ()
    marker: str | None = None
    text: str
    """The line, for messages."""
    editable: bool = False
    """Whether the code is imported from that folder, rather than from an installed copy."""
    is_copy: bool = False
    """Whether it is an installed copy of a part of the project."""
    place: Place = field(compare=False)


_SETTING: Final = re.compile(
    r"\s(?:--(?:hash|config-settings?|global-option|install-option)\b|-C(?=[\s=]))"
)
_VARIABLE: Final = re.compile(r"\$\{([A-Z0-9_]+)\}")
_SYSTEM_VARIABLES: Final = ("platform_release", "platform_version")
_PATCH_VARIABLES: Final = ("python_full_version", "implementation_version")
_PATCHES: Final = 64
"""More patch versions than any minor version of Python has had."""
_LOCAL_SCHEME: Final = re.compile(r"(?:[a-z]+\+)?file:", re.IGNORECASE)
_NAMED: Final = re.compile(r"\s*[\w.-]+\s*(?:\[([^\]]*)\])?\s*")
_ARCHIVES: Final = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Return *text* with each variable that is set replaced by its value, as pip and uv do.

    Only `${NAME}` in capital letters is a variable.
    """
    return _VARIABLE.sub(lambda found: environ.get(found[1], found[0]), text)


def marker_holds(marker: str | None, environment: Mapping[str, str]) -> bool:
    """Return whether *marker* may hold in *environment*.

    A missing marker holds. A marker with unknown variables may hold. If *environment* has only the
    minor version of Python, the marker may hold if it holds for some patch version.
    """
    if marker is None:
        return True
    known: Mapping[str, str] = {**environment, "extra": ""}
    if any(name in marker and name not in known for name in _SYSTEM_VARIABLES):
        return True
    parsed = Marker(marker)
    versions: Iterable[Mapping[str, str]] = [{}]
    if _PATCH_VARIABLES[0] not in known:
        patches = range(_PATCHES if any(name in marker for name in _PATCH_VARIABLES) else 1)
        fulls = (f"{known['python_version']}.{patch}" for patch in patches)
        versions = (dict.fromkeys(_PATCH_VARIABLES, full) for full in fulls)
    try:
        return any(parsed.evaluate({**known, **version}) for version in versions)
    except (UndefinedComparison, UndefinedEnvironmentName, InvalidVersion):
        return True


def both(first: str | None, second: str | None) -> str | None:
    """Return the marker that holds where both markers hold; None always holds."""
    return f"({first}) and ({second})" if first and second else first or second


def parse_requirement(text: str, place: Place, *, keep: bool = False) -> Requirement:
    """Parse one requirement by name or address, with its hashes.

    Raises:
        DependencyError: *text* is not a requirement.
    """
    body, settings = _split_settings(text)
    hashes = tuple(sorted({s.partition("=")[2] for s in settings if s.startswith("--hash=")}))
    others = tuple(s for s in settings if not s.startswith("--hash="))
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://", body):
        # Without `NAME @`, the name may follow from the egg fragment or the wheel file.
        url, _, marker = body.partition(" ;")
        parts = urlsplit(url.strip())
        egg = re.search(r"(?:^|&)egg=([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", unquote(parts.fragment))
        file = unquote(posixpath.basename(parts.path))
        name = egg[1] if egg else file.split("-", 1)[0] if file.endswith(".whl") else ""
        return Requirement(
            name=canonicalize_name(name),
            extras=_extras(egg[2] if egg else None),
            url=url.strip(),
            marker=_marker(marker, place),
            hashes=hashes,
            settings=others,
            keep=keep,
            place=place,
        )
    try:
        parsed = _Parsed(body)
    except InvalidRequirement as error:
        words = str(error).splitlines()[0]
        raise DependencyError(
            f"{place}: {without_secrets(body)!r} is not a requirement: {words}.",
            hint="Write NAME, NAME==VERSION or NAME @ URL.",
        ) from None
    return Requirement(
        name=canonicalize_name(parsed.name),
        extras=tuple(sorted({canonicalize_name(extra) for extra in parsed.extras})),
        specifier=str(parsed.specifier),
        url=parsed.url,
        marker=str(parsed.marker) if parsed.marker else None,
        hashes=hashes,
        settings=others,
        keep=keep,
        place=place,
    )


def parse_local(
    text: str, place: Place, *, editable: bool = False, line: str | None = None
) -> LocalRequirement | None:
    """Return the path on this machine that *text* names; None if it is a name or an address.

    With *editable* (the argument of `-e`), everything that is not an address is a path.

    Raises:
        DependencyError: A path or an address is missing, as in `six @`.
    """
    body, _ = _split_settings(text)
    body, _, marker = body.partition(";")
    name, at, address = body.partition("@")
    if at and (named := _NAMED.fullmatch(name)):
        path, extras, must_be_path = address.strip(), named[1], True
    else:
        found = re.fullmatch(r"(.*?)(?:\[([^\]/\\]*)\])?", body.strip())
        path, extras = (found[1], found[2]) if found else (body.strip(), None)
        must_be_path = editable
    if _LOCAL_SCHEME.match(path):
        path = unquote(urlsplit(path.partition("+")[2] or path).path)
    elif "://" in path:
        return None
    elif not must_be_path:
        has_version = re.search(r"[<>=!~]", path.split("/")[0])
        is_place = path in (".", "..") or "/" in path or "\\" in path
        if has_version or not (is_place or path.lower().endswith(_ARCHIVES)):
            return None
    if not path:
        raise DependencyError(
            f"{place}: {(line or text)!r} names no path or address.",
            hint="Write NAME, NAME==VERSION, NAME @ URL or a path.",
        )
    return LocalRequirement(
        # As in pip and uv: relative to the folder where they run, not to the file with this line.
        path=posixpath.normpath(path),
        extras=_extras(extras),
        marker=_marker(marker, place),
        text=line or text,
        editable=editable,
        place=place,
    )


def _split_settings(text: str) -> tuple[str, list[str]]:
    found = _SETTING.search(text)
    if found is None:
        return text.strip(), []
    settings: list[str] = []
    for word in text[found.start() :].split():
        if word.startswith(("--", "-C")):
            settings.append(word)
        elif "=" not in settings[-1]:  # --hash sha256:…
            settings[-1] += f"={word}"
        else:  # A value with a blank, in quotes.
            settings[-1] += f" {word}"
    return text[: found.start()].strip(), settings


def _extras(text: str | None) -> tuple[str, ...]:
    names = (part.strip() for part in (text or "").split(","))
    return tuple(sorted({canonicalize_name(name) for name in names if name}))


def _marker(text: str, place: Place) -> str | None:
    if not text.strip():
        return None
    try:
        return str(Marker(text.strip()))
    except InvalidMarker:
        raise DependencyError(
            f"{place}: {text.strip()!r} is not an environment marker.",
            hint="Write for instance: ; python_version < '3.12'",
        ) from None
