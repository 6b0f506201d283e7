"""The profiles file: named sets of settings, one of them current."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetic.backends.registry import LOCAL, entry_of
from kinetic.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


PATHWAYS = "pathways_"
"""The prefix of the keys that describe the components of Pathways."""
_PARTS = (
    *("server_image", "proxy_image", "tag", "scratch", "manager", "proxy", "function", "worker"),
    *("head_selector", "head_tolerations", "head_topology"),
    *("worker_selector", "worker_tolerations"),
)
_OBJECTS = ("pod_overrides",)
"""The keys whose values are objects; those of the others are text."""
KEYS = (
    *("project", "zone", "cluster", "namespace", "backend", "kube_context", "store_timeout"),
    *("service_account", "image_builder", "build_secret", "image_repo", "base_image_repo"),
    *_OBJECTS,
    *(PATHWAYS + part for part in _PARTS),
)
"""The settings that a profile can have, in the order in which they are written."""


@dataclass(frozen=True)
class Profile:
    """A named set of settings, of those in `KEYS`."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)

    def facts(self) -> dict[str, Any]:
        """Return the name and all settings; None means that the profile does not set it."""
        return {"name": self.name, **dict.fromkeys(KEYS), **self.settings}


@dataclass(frozen=True)
class Profiles:
    """The contents of the profiles file."""

    path: Path
    current: str | None
    profiles: Mapping[str, Profile]

    def find(self, name: str, *, because: str = "") -> Profile:
        """Return the profile *name*; *because* is the source of the name, for the message.

        Raises:
            ConfigurationError: There is none; the hint has similar names.
        """
        if name in self.profiles:
            return self.profiles[name]
        import difflib

        near = difflib.get_close_matches(name, self.profiles, n=3)
        if near:
            hint = f"Did you mean {' or '.join(map(repr, near))}?"
        elif self.profiles:
            hint = f"There are: {', '.join(sorted(self.profiles))}."
        else:
            hint = "Make one with: kinetic profile create NAME"
        source = f" {because} asks for it." if because else ""
        raise ConfigurationError(f"There is no profile {name!r} in {self.path}.{source}", hint=hint)

    @property
    def active(self) -> Profile | None:
        """The current profile, or None if none is current."""
        return self.profiles[self.current] if self.current else None


def read_profiles(path: Path) -> Profiles:
    """Read the profiles file; a missing one holds no profiles.

    Raises:
        ConfigurationError: The file is broken; the message names the file and the key.
    """
    return _parse(path, _read(path))


def create_profile(path: Path, profile: Profile, *, replace: bool = False) -> Profiles:
    """Add *profile*; the first profile of a file becomes the current one.

    Raises:
        ConfigurationError: Its name is not valid, it lacks a setting, or it exists already.
    """
    if not _NAME.fullmatch(profile.name):
        raise ConfigurationError(
            f"{profile.name!r} cannot be the name of a profile.",
            hint="Use up to 64 letters, digits, '-' and '_', beginning with a letter or a digit.",
        )
    _check_complete(profile)

    def change(document: dict[str, Any]) -> None:
        profiles = document.setdefault("profiles", {})
        if profile.name in profiles and not replace:
            raise ConfigurationError(
                f"There is already a profile {profile.name!r}.",
                hint=f"Remove it first (kinetic profile rm {profile.name}), or use another name.",
            )
        # Keys that this version does not know stay as they are.
        unknown = {k: v for k, v in profiles.get(profile.name, {}).items() if k not in KEYS}
        first = not profiles
        profiles[profile.name] = {**profile.settings, **unknown}
        if first:
            document["current"] = profile.name

    return _edit(path, change)


def use_profile(path: Path, name: str) -> Profiles:
    """Make *name* the current profile.

    Raises:
        ConfigurationError: There is no such profile.
    """

    def change(document: dict[str, Any]) -> None:
        _parse(path, document).find(name)
        document["current"] = name

    return _edit(path, change)


def unset_profile(path: Path) -> Profiles:
    """Make no profile current."""

    return _edit(path, lambda document: document.update(current=None))


def remove_profile(path: Path, name: str) -> Profiles:
    """Remove a profile; if it was the current one, no profile is current afterwards.

    Raises:
        ConfigurationError: There is no such profile.
    """

    def change(document: dict[str, Any]) -> None:
        _parse(path, document).find(name)
        del document["profiles"][name]
        if document.get("current") == name:
            document["current"] = None

    return _edit(path, change)


def _check_complete(profile: Profile) -> None:
    settings = profile.settings
    if not settings:
        raise ConfigurationError(
            f"Profile {profile.name!r} has no settings.",
            hint="Name a cluster (--project, --zone and --cluster, or --kube-context), or the backend "
            f"{LOCAL!r}, or another setting.",
        )
    on_this_machine = "backend" in settings and entry_of(settings["backend"]).on_this_machine
    if on_this_machine or "kube_context" in settings:
        return
    place = ("project", "zone", "cluster")
    missing = [key for key in place if key not in settings]
    # A profile that names no place at all leaves it to the environment.
    if missing and len(missing) < len(place):
        raise ConfigurationError(
            f"Profile {profile.name!r} has no {' and no '.join(missing)}.",
            hint="Name project, zone and cluster together: those of two clusters would be mixed otherwise.",
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {"current": None, "profiles": {}}
    except OSError as error:
        raise ConfigurationError(
            f"The profiles file {path} cannot be read: {error.strerror}.",
            hint="Make it readable, or name another file with KINETIC_PROFILES_FILE.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _broken(path, "it does not hold an object")
    return document


def _parse(path: Path, document: dict[str, Any]) -> Profiles:
    written = document.get("profiles", {})
    if not isinstance(written, dict):
        raise _broken(path, "'profiles' is not an object")
    profiles = {}
    for name, values in written.items():
        if not _NAME.fullmatch(name):
            raise _broken(path, f"{name!r} cannot be the name of a profile")
        if not isinstance(values, dict):
            raise _broken(path, f"profile {name!r} is not an object")
        for key in KEYS:
            kind, wanted = (dict, "an object") if key in _OBJECTS else (str, "text")
            if values.get(key) is not None and not isinstance(values[key], kind):
                raise _broken(path, f"{key!r} of profile {name!r} is not {wanted}")
        profiles[name] = Profile(name, {key: values[key] for key in KEYS if values.get(key)})
    current = document.get("current")
    if not isinstance(current, str | None):
        raise _broken(path, "'current' is neither text nor null")
    if current is not None and current not in profiles:
        raise _broken(path, f"the current profile {current!r} is not among the profiles")
    return Profiles(path, current, profiles)


def _broken(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"The profiles file {path} is broken: {what}.",
        hint="Correct it, or move the file away; Kinetic never overwrites a broken one.",
    )


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> Profiles:
    try:
        from kinetic_payload.files.locks import locked
        from kinetic_payload.files.private import make_folder, write_private
    except ImportError as error:
        raise ConfigurationError("Kinetic runs on Linux and macOS, not on Windows.") from error
    # A link to a file kept elsewhere stays a link.
    path = path.resolve()
    make_folder(path.parent)
    with locked(f"{path}.lock"):
        document = _read(path)
        _parse(path, document)
        document.setdefault("current", None)
        change(document)
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        write_private(path, text.encode(), durable=True)
    return read_profiles(path)
