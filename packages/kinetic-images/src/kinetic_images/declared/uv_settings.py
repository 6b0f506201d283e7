"""Settings of uv, which uv reads itself: the indexes that they name, and what changes with them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from packaging.utils import canonicalize_name

from kinetic_images.credentials import without_credentials
from kinetic_images.declared.toml_text import table

_ADDRESSES: Final = frozenset({"index", "index-url", "extra-index-url", "find-links"})
NO_EFFECT: Final = frozenset(
    {
        "allow-insecure-host",
        "cache-dir",
        "cache-keys",
        "concurrent-builds",
        "concurrent-downloads",
        "concurrent-installs",
        "default-groups",
        "dependency-groups",
        "dev-dependencies",
        "http-proxy",
        "https-proxy",
        "keyring-provider",
        "link-mode",
        "native-tls",
        "no-proxy",
        "offline",
        "sources",  # Read with the dependencies that they are about.
        "system-certs",
        "workspace",
    }
)
"""Settings that do not change which packages are chosen; any other one may, also one of a later uv."""
_WORD: Final = re.compile(r"(?:(?P<name>[\w.-]+)=(?=\w+:|/))?(?P<address>.+)", re.DOTALL)
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "index-url": {"default": True},
    "extra-index-url": {},
    "find-links": {"format": "flat"},
    "UV_DEFAULT_INDEX": {"default": True},
    "UV_INDEX_URL": {"default": True},
    "UV_INDEX": {},
    "UV_EXTRA_INDEX_URL": {},
    "UV_FIND_LINKS": {"format": "flat"},
}
"""Settings, options and variables that name indexes → the same in a table `[[tool.uv.index]]`."""


@dataclass(frozen=True)
class Index:
    """A place where packages come from."""

    address: str = field(repr=False)
    """A URL, which may contain credentials, or an absolute path."""
    options: Mapping[str, Any]
    """Its other keys in `[[tool.uv.index]]`, such as `name`, `default` and `format`."""
    named_by: str = field(compare=False)
    """The setting, option or variable that names it, for messages."""

    @property
    def is_flat(self) -> bool:
        """Whether it is a folder or a page whose files are packages."""
        return self.options.get("format") == "flat"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of uv for a folder."""

    tables: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The settings files that uv reads, the one that takes precedence first."""
    indexes: tuple[Index, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that decide which packages are chosen, apart from indexes."""
    notes: tuple[str, ...] = ()
    of_script: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings in a script, with absolute addresses: uv does not find them for a folder."""

    def values(self, key: str) -> Iterator[Any]:
        """Iterate over the values of the setting *key*, also in the table `pip`."""
        for each in self.tables:
            yield from (part[key] for part in (each, table(each.get("pip"))) if key in part)

    @property
    def overridden(self) -> frozenset[str]:
        """The names of the packages whose requirements an override replaces."""
        lists = [value for value in self.values("override-dependencies") if isinstance(value, list)]
        names = (re.match(r"[\w.-]+", str(text)) for texts in lists for text in texts)
        return frozenset(str(canonicalize_name(found[0])) for found in names if found)

    @property
    def digested(self) -> list[Any]:
        """The settings that determine what is installed, apart from indexes, without credentials."""
        return [*filter(None, map(_deciding, self.tables)), *sorted(self.variables.items())]


def table_indexes(value: object, folder: str) -> list[dict[str, Any]]:
    """Return the tables `[[tool.uv.index]]` in *value*, with relative paths made absolute from *folder*."""
    rows = value if isinstance(value, list) else []
    return [
        {**row, "url": absolute_address(row["url"], folder)}
        for row in rows
        if isinstance(table(row).get("url"), str)
    ]


def index_of(row: Mapping[str, Any]) -> Index:
    """Return the index in a table `[[tool.uv.index]]`."""
    named_by = f"[[tool.uv.index]] {row.get('name', '')}".rstrip()
    options = {key: value for key, value in row.items() if key != "url"}
    return Index(row["url"], options, named_by)


def setting_indexes(settings: Mapping[str, Any], folder: str) -> Iterator[Index]:
    """Iterate over the indexes that a settings file of uv in *folder* names."""
    for part in (settings, table(settings.get("pip"))):
        yield from map(index_of, table_indexes(part.get("index"), folder))
        for key in sorted(_ADDRESSES & _OPTIONS.keys() & part.keys()):
            for text in part[key] if isinstance(part[key], list) else [part[key]]:
                address = absolute_address(str(text), folder)
                yield Index(address, _OPTIONS[key], f"{key} of uv's settings")


def named_index(name: str, value: str, folder: str = "/") -> Iterator[Index]:
    """Iterate over the indexes in the *value* of the option or variable *name*."""
    options = _OPTIONS.get(name.removeprefix("--"), {})
    words = re.split(r"," if name == "UV_FIND_LINKS" else r"\s+", value)
    for found in filter(None, map(_WORD.fullmatch, words if name in _OPTIONS else [value])):
        more = {"name": found["name"]} if found["name"] else {}
        address = absolute_address(found["address"], folder)
        yield Index(address, {**options, **more}, name)


def absolute_address(address: str, folder: str) -> str:
    """Return *address*, a URL or a path relative to *folder*, in a form that does not depend on *folder*.

    A relative path becomes a URL: in a path, uv would cut off what follows `#` and expand variables.
    """
    if "://" in address or address.startswith(("file:", "/")):
        return address
    return PurePosixPath(posixpath.normpath(posixpath.join("/", folder, address))).as_uri()


def with_absolute_addresses(settings: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the *settings* of a file in *folder*, for a file in another one."""
    found = dict(settings)
    for key in _ADDRESSES & found.keys():
        texts = found[key] if isinstance(found[key], list) else [found[key]]
        addresses = [absolute_address(str(text), folder) for text in texts]
        found[key] = addresses if isinstance(found[key], list) else addresses[0]
    if "index" in found:
        found["index"] = table_indexes(settings["index"], folder)
    return found


def _deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of *settings* that may change which packages are chosen, as JSON can write them."""
    chosen = {
        key: public(value)
        for key, value in settings.items()
        if key not in NO_EFFECT | _ADDRESSES | {"pip"}
    }
    pip = _deciding(table(settings["pip"])) if "pip" in settings else {}
    return chosen | ({"pip": pip} if pip else {})


def public(value: Any) -> Any:
    """Return *value* without credentials, as JSON can write it."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    return value if isinstance(value, bool | int | float) else str(value)
