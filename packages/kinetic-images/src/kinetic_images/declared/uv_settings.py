"""Settings of uv (`[tool.uv]`, `uv.toml`): passed on, without effect here, or refused."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from kinetic_images.credentials import without_credentials
from kinetic_images.declared.requirements import (
    LocalRequirement,
    Place,
    Requirement,
    expanded,
    parse_local,
    parse_requirement,
)
from kinetic_images.declared.toml_text import Lines, parsed_toml, table
from kinetic_images.errors import DependencyError

_ORIGINS: Final = frozenset(
    {"index", "index-url", "extra-index-url", "find-links", "no-index", "index-strategy"}
)
"""Settings that say where packages come from."""
_TRANSPORT: Final = frozenset(
    {
        "allow-insecure-host",
        "concurrent-builds",
        "concurrent-downloads",
        "concurrent-installs",
        "http-proxy",
        "https-proxy",
        "keyring-provider",
        "link-mode",
        "native-tls",
        "no-proxy",
        "offline",
        "system-certs",
    }
)
"""Settings that say how packages are fetched; they are passed on, and are not part of the digest."""
_CHOICE: Final = frozenset(
    {
        "build-constraint-dependencies",
        "config-settings",
        "config-settings-package",
        "constraint-dependencies",
        "dependency-metadata",
        "exclude-dependencies",
        "exclude-newer",
        "exclude-newer-package",
        "extra-build-dependencies",
        "extra-build-variables",
        "fork-strategy",
        "no-binary",
        "no-binary-package",
        "no-build",
        "no-build-isolation",
        "no-build-isolation-package",
        "no-build-package",
        "override-dependencies",
        "prerelease",
        "prerelease-package",
        "preview",
        "preview-features",
        "require-build-hashes",
        "required-version",
        "resolution",
        "torch-backend",
    }
)
"""Settings that say which versions are chosen, and how packages are built."""
_NO_EFFECT: Final = frozenset(
    {
        "add-bounds",
        "audit",
        "build-backend",
        "cache-dir",
        "cache-keys",
        "check-url",
        "compile-bytecode",
        "conflicts",
        "default-groups",
        "dependency-groups",
        "dev-dependencies",
        "environments",
        "graalpy-install-mirror",
        "managed",
        "minimum-libc-version",
        "no-cache",
        "package",
        "publish-url",
        "pypy-install-mirror",
        "pyodide-install-mirror",
        "python-downloads",
        "python-downloads-json-url",
        "python-install-mirror",
        "python-preference",
        "reinstall",
        "reinstall-package",
        "required-environments",
        "sources",  # Read with the dependencies that they are about.
        "trusted-publishing",
        "upgrade",
        "upgrade-package",
        "workspace",
    }
)
"""Settings that `uv pip` does not read, or that Kinetic decides: lock files, caches, Python versions, …"""
_PIP_PASSED: Final = frozenset(
    {
        "config-settings",
        "config-settings-package",
        "dependency-metadata",
        "exclude-newer",
        "exclude-newer-package",
        "extra-build-dependencies",
        "extra-build-variables",
        "extra-index-url",
        "find-links",
        "fork-strategy",
        "index-strategy",
        "index-url",
        "keyring-provider",
        "link-mode",
        "no-binary",
        "no-build",
        "no-build-isolation",
        "no-build-isolation-package",
        "no-index",
        "only-binary",
        "prerelease",
        "require-build-hashes",
        "resolution",
        "torch-backend",
        "verify-hashes",
    }
)
_PIP_NO_EFFECT: Final = frozenset(
    {
        "allow-empty-requirements",
        "annotation-style",
        "break-system-packages",
        "compile-bytecode",
        "custom-compile-command",
        "emit-build-options",
        "emit-find-links",
        "emit-index-annotation",
        "emit-index-url",
        "emit-marker-expression",
        "generate-hashes",
        "no-annotate",
        "no-emit-package",
        "no-header",
        "no-strip-extras",
        "no-strip-markers",
        "output-file",
        "prefix",
        "python",
        "python-platform",
        "python-version",
        "reinstall",
        "reinstall-package",
        "strict",
        "system",
        "target",
        "universal",
        "upgrade",
        "upgrade-package",
    }
)
_REFUSED: Final = {
    "no-sources": "Remove it, and the unwanted entries of [tool.uv.sources].",
    "no-sources-package": "Remove it, and the unwanted entries of [tool.uv.sources].",
}
_PIP_REFUSED: Final = _REFUSED | {
    "all-extras": "Name the extras in requirements.txt: -e .[EXTRA]",
    "extra": "Name the extras in requirements.txt: -e .[EXTRA]",
    "group": "Write its dependencies to requirements.txt: uv export --only-group GROUP",
    "no-deps": "Write all packages to requirements.txt with exact versions, and remove the setting.",
    "no-extra": "Name the extras in requirements.txt: -e .[EXTRA]",
}
_LISTS: Final = frozenset({"extra-index-url", "find-links"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of uv that apply to an installation."""

    passed: Mapping[str, Any] = field(default_factory=dict)
    """The settings for the `uv.toml` that uv gets; paths in them are absolute."""
    constraints: tuple[Requirement, ...] = ()
    overrides: tuple[Requirement, ...] = ()
    local: tuple[LocalRequirement, ...] = ()
    """Constraints and overrides that are paths on this machine."""
    require_hashes: Place | None = None
    """The place of the setting that requires hashes of all packages, or None."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that say where packages come from."""
    notes: tuple[str, ...] = ()

    @property
    def digested(self) -> dict[str, Any]:
        """The settings that determine what is installed, without credentials."""
        chosen = {key: value for key, value in self.passed.items() if key not in _TRANSPORT}
        if self.variables:
            chosen["variables"] = self.variables
        if "pip" in chosen:
            pip = chosen["pip"].items()
            chosen["pip"] = {key: value for key, value in pip if key not in _TRANSPORT}
        digested: dict[str, Any] = _public(chosen)
        return digested

    @property
    def decide(self) -> bool:
        """Whether these settings affect the installation. Indexes that only sources use do not count."""
        chosen = self.digested
        chosen |= chosen.pop("pip", {})
        indexes = chosen.pop("index", ())
        return bool(
            chosen
            or any(not index.get("explicit") for index in indexes)
            or self.constraints
            or self.overrides
            or self.local
            or self.require_hashes
        )

    @property
    def default_index(self) -> str | None:
        """The setting or variable that names the default index, or None."""
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
            if name in self.variables:
                return name
        if "index-url" in self.passed or "index-url" in self.passed.get("pip", {}):
            return "index-url"
        default = any(index.get("default") for index in self.passed.get("index", ()))
        return "an index with default = true" if default else None

    def over(self, others: Settings) -> Settings:
        """Return these settings combined with *others* (of the user or the machine), as uv does.

        Lists are joined, with the values of these settings first. Otherwise these settings take
        precedence.
        """
        return replace(
            self,
            passed=_joined(self.passed, others.passed),
            variables={**others.variables, **self.variables},
            notes=(*self.notes, *others.notes),
        )


def parse_uv_toml(
    text: str,
    file: str,
    folder: str,
    *,
    of_project: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read the text of a `uv.toml` in *folder*; *file* is its name for messages.

    `${NAME}` in constraints and overrides is replaced by that variable of *environ*.

    If the file is not *of_project* (it belongs to the user or the machine), keep only the settings that
    say where packages come from and how they are fetched, and note the others.

    Raises:
        DependencyError: A setting is not supported or malformed.
    """
    document = parsed_toml(text, file)
    lines = Lines(text, file)
    if document.get("sources"):
        raise DependencyError(
            f"{lines.key('sources')}: uv allows `sources` in pyproject.toml only.",
            hint="Move the table to [tool.uv.sources] in pyproject.toml.",
        )
    return parse_settings(document, lines, folder, of_project=of_project, environ=environ)


def parse_settings(
    uv: Mapping[str, Any],
    lines: Lines,
    folder: str,
    *,
    of_project: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read the table *uv*, which is `[tool.uv]` or a whole `uv.toml`; see `parse_uv_toml`.

    Raises:
        DependencyError: A setting is not supported or malformed.
    """
    pip = table(uv.get("pip"))
    _refuse(uv, _ORIGINS | _TRANSPORT | _CHOICE | _NO_EFFECT | {"pip"}, _REFUSED, lines, "")
    pip_known = _PIP_PASSED | _PIP_NO_EFFECT | {"require-hashes"}
    _refuse(pip, pip_known, _PIP_REFUSED, lines, "pip.")
    taken = _ORIGINS | _TRANSPORT
    notes: tuple[str, ...] = ()
    if of_project:
        taken |= _CHOICE
    else:
        left = [key for key in uv if key in _CHOICE]
        left += [f"pip.{key}" for key in pip if key in pip_known - taken - _PIP_NO_EFFECT]
        notes = tuple(
            f"{lines.key(key.removeprefix('pip.'))}: {key} was ignored: only the project's own files "
            "choose packages and versions."
            for key in left
        )
    passed = {key: value for key, value in uv.items() if key in taken}
    constraints, overrides = (
        _requirements(passed.pop(key, []), key, lines, environ or {})
        for key in ("constraint-dependencies", "override-dependencies")
    )
    pip_taken = _PIP_PASSED if of_project else _PIP_PASSED & taken
    pip_passed = {key: value for key, value in pip.items() if key in pip_taken}
    passed = _with_absolute_paths(passed, lines, folder)
    if pip_passed:
        passed["pip"] = _with_absolute_paths(pip_passed, lines, folder)
    both = (*constraints, *overrides)
    return Settings(
        passed=passed,
        constraints=tuple(line for line in constraints if isinstance(line, Requirement)),
        overrides=tuple(line for line in overrides if isinstance(line, Requirement)),
        local=tuple(line for line in both if isinstance(line, LocalRequirement)),
        require_hashes=lines.key("require-hashes")
        if of_project and pip.get("require-hashes")
        else None,
        notes=notes,
    )


def parse_indexes(value: object, lines: Lines, folder: str) -> tuple[Mapping[str, Any], ...]:
    """Read the tables `[[tool.uv.index]]`, with relative paths made absolute from *folder*.

    Raises:
        DependencyError: *value* is not a list of tables with a `url`.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(table(i).get("url"), str) for i in value):
        raise DependencyError(
            f"{lines.key('index')}: every index must be a table with a `url`.",
            hint='Write: [[tool.uv.index]] and below it: url = "https://…"',
        )
    return tuple({**index, "url": absolute_address(index["url"], folder)} for index in value)


def absolute_address(address: str, folder: str) -> str:
    """Return *address*, a URL or a path relative to *folder*, in a form that does not depend on *folder*.

    A relative path becomes a URL: in a path, uv would cut off what follows `#` and expand variables.
    """
    if "://" in address or address.startswith(("file:", "/")):
        return address
    return PurePosixPath(posixpath.normpath(posixpath.join("/", folder, address))).as_uri()


def _refuse(
    given: Mapping[str, Any],
    known: Iterable[str],
    refused: Mapping[str, str],
    lines: Lines,
    prefix: str,
) -> None:
    for key, value in given.items():
        if key in refused:
            if value:
                raise DependencyError(
                    f"{lines.key(key)}: the setting {prefix}{key} of uv is not supported here.",
                    hint=refused[key],
                )
        elif key not in known:
            raise DependencyError(
                f"{lines.key(key)}: {prefix}{key} is not a setting of uv that Kinetic knows. "
                "It might change which packages are installed, so it is not ignored.",
                hint="Correct or remove it, or write all packages to a requirements.txt in a "
                "folder that has no settings of uv: uv pip compile --emit-index-url",
            )


def _requirements(
    value: object, key: str, lines: Lines, environ: Mapping[str, str]
) -> tuple[Requirement | LocalRequirement, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise DependencyError(
            f"{lines.key(key)}: {key} must be a list of strings.",
            hint=f'Write: {key} = ["numpy<3"]',
        )
    read: list[Requirement | LocalRequirement] = []
    for written in value:
        place = lines.text(written)
        text = expanded(written, environ)
        read.append(parse_local(text, place) or parse_requirement(text, place))
    return tuple(read)


def _with_absolute_paths(settings: Mapping[str, Any], lines: Lines, folder: str) -> dict[str, Any]:
    result = dict(settings)
    if "index" in result:
        result["index"] = list(parse_indexes(result["index"], lines, folder))
    if "index-url" in result:
        url = _text(result["index-url"], "index-url", lines)
        result["index-url"] = absolute_address(url, folder)
    for key in _LISTS & result.keys():
        value = result[key]
        if not isinstance(value, list):
            raise DependencyError(
                f"{lines.key(key)}: {key} must be a list of strings.", hint=f'Write: {key} = ["…"]'
            )
        result[key] = [absolute_address(_text(item, key, lines), folder) for item in value]
    return result


def _text(value: object, key: str, lines: Lines) -> str:
    if not isinstance(value, str):
        raise DependencyError(
            f"{lines.key(key)}: {key} must be a string; got {value!r}.", hint=f'Write: {key} = "…"'
        )
    return value


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(second)
    for key, value in first.items():
        other = second.get(key)
        if isinstance(value, list) and isinstance(other, list):
            joined[key] = [*value, *other]
        elif key == "pip":
            joined[key] = _joined(value, table(other))
        else:
            joined[key] = value
    return joined


def _public(value: Any) -> Any:
    """Return *value* without credentials, as JSON can write it."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {key: _public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_public(item) for item in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)
