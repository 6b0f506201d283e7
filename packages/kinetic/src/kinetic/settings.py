"""The settings: argument, environment, profile or default; the only reader of the last three."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from kinetic.errors import ConfigurationError
from kinetic_payload.layout import Env

if TYPE_CHECKING:
    from kinetic.profiles import Profile

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Setting(Generic[T_co]):
    """A value and where it comes from."""

    value: T_co
    source: str
    """`argument`, the variable's name, `profile NAME` or `default`."""

    @property
    def given(self) -> bool:
        """Whether somebody chose it: it is not the default."""
        return self.source != "default"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set from outside, resolved once."""

    project: Setting[str | None]
    zone: Setting[str]
    cluster: Setting[str]
    namespace: Setting[str]
    backend: Setting[str | None]
    kube_context: Setting[str | None]
    store: Setting[str | None]
    output_dir: Setting[str | None]
    """None means a folder of the job's own."""
    base_image_repo: Setting[str]
    profile: Setting[str | None]
    profiles_file: Setting[Path]
    home: Setting[Path]
    package_root: Setting[str | None]
    no_default_excludes: Setting[bool]
    context_size_warn_mb: Setting[float]
    payload_size_warn_mb: Setting[float]
    trust_bucket: Setting[bool]
    no_color: Setting[bool]

    @classmethod
    def from_environment(cls, **arguments: object) -> Settings:
        """Resolve the settings from *arguments*, this process's environment and the profiles file.

        Raises:
            ConfigurationError: A variable, the profiles file or the choice of profile is wrong.
        """
        return resolve(arguments, environ=environment())

    def named(self) -> dict[str, Setting[object]]:
        """Return the settings by name, in the order in which a person would read them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def environment() -> dict[str, str]:
    """Return this process's environment as it is now."""
    return dict(os.environ)  # noqa: TID251 - this module is its reader


def inside_job() -> bool:
    """Tell whether this process belongs to a job: the runner says so in its environment."""
    return bool(os.environ.get(Env.JOB_ID))  # noqa: TID251 - this module is its reader


def resolve(arguments: Mapping[str, object], *, environ: Mapping[str, str]) -> Settings:
    """Resolve every setting: argument > `KINETIC_*` > profile > default.

    An argument that is None counts as not given, an empty variable as not set.

    Raises:
        ConfigurationError: A value cannot be right; the message names where it comes from.
    """
    unknown = sorted(set(arguments) - {field.name for field in fields(Settings)})
    if unknown:
        raise TypeError(f"There is no setting {unknown[0]!r}.")
    outside = _Sources(arguments, environ, None)
    home = outside.path("home", _user_home(environ) / ".kinetic")
    profiles_file = outside.path("profiles_file", home.value / "profiles.json")
    profile, chosen = _active_profile(outside, profiles_file.value)
    of = _Sources(arguments, environ, chosen)
    return Settings(
        project=of.text("project", "GOOGLE_CLOUD_PROJECT"),
        zone=of.text_or("zone", "us-central1-a"),
        cluster=of.text_or("cluster", "kinetic-cluster"),
        namespace=of.text_or("namespace", "default"),
        backend=of.text("backend"),
        kube_context=of.text("kube_context"),
        store=of.text("store"),
        output_dir=of.text("output_dir"),
        base_image_repo=of.text_or("base_image_repo", "kinetic"),
        profile=profile,
        profiles_file=profiles_file,
        home=home,
        package_root=of.text("package_root"),
        no_default_excludes=of.flag("no_default_excludes"),
        context_size_warn_mb=of.number("context_size_warn_mb", 100.0),
        payload_size_warn_mb=of.number("payload_size_warn_mb", 50.0),
        trust_bucket=of.flag("trust_bucket"),
        # https://no-color.org: any text but none at all means no colour.
        no_color=Setting(True, "NO_COLOR")
        if environ.get("NO_COLOR")
        else Setting(False, "default"),
    )


def _user_home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _active_profile(
    of: _Sources, profiles_file: Path
) -> tuple[Setting[str | None], Profile | None]:
    from kinetic.profiles import read_profiles

    asked = of.text("profile")
    profiles = read_profiles(profiles_file)
    if asked.value is not None:
        return asked, profiles.find(asked.value, because=asked.source)
    if profiles.active is not None:
        return Setting(profiles.active.name, str(profiles_file)), profiles.active
    return asked, None


class _Sources:
    """Where a setting may come from, asked in order."""

    def __init__(
        self, arguments: Mapping[str, object], environ: Mapping[str, str], profile: Profile | None
    ) -> None:
        self._arguments = arguments
        self._environ = environ
        self._profile = profile

    def text(self, name: str, last_variable: str | None = None) -> Setting[str | None]:
        """Return a text; *last_variable* is asked after everything else."""
        argument = self._arguments.get(name)
        if argument is not None and not isinstance(argument, str):
            raise ConfigurationError(
                f"{name} must be text, not {type(argument).__name__} ({argument!r})."
            )
        if argument:
            return Setting(argument, "argument")
        variable = f"KINETIC_{name.upper()}"
        if value := self._environ.get(variable):
            return Setting(value, variable)
        if self._profile is not None and (value := self._profile.values().get(name)):
            return Setting(value, f"profile {self._profile.name}")
        if last_variable is not None and (value := self._environ.get(last_variable)):
            return Setting(value, last_variable)
        return Setting(None, "default")

    def text_or(self, name: str, default: str) -> Setting[str]:
        """Return a text that is never None."""
        found = self.text(name)
        return (
            Setting(default, "default")
            if found.value is None
            else Setting(found.value, found.source)
        )

    def path(self, name: str, default: Path) -> Setting[Path]:
        """Return an absolute path; a leading `~` is the user's home."""
        argument = self._arguments.get(name)
        if isinstance(argument, Path):
            return Setting(argument.expanduser().absolute(), "argument")
        found = self.text(name)
        if found.value is None:
            return Setting(default, "default")
        home = str(_user_home(self._environ))
        text = found.value
        if text == "~" or text.startswith("~/"):
            text = home + text[1:]
        return Setting(Path(text).absolute(), found.source)

    def flag(self, name: str) -> Setting[bool]:
        """Return a yes or a no."""
        argument = self._arguments.get(name)
        if isinstance(argument, bool):
            return Setting(argument, "argument")
        found = self.text(name)
        if found.value is None:
            return Setting(False, "default")
        word = found.value.strip().lower()
        if word in _YES or word in _NO:
            return Setting(word in _YES, found.source)
        raise ConfigurationError(
            f"{found.source}={found.value!r} is neither yes nor no.", hint="Set it to 1 or to 0."
        )

    def number(self, name: str, default: float) -> Setting[float]:
        """Return a number that is not negative."""
        argument = self._arguments.get(name)
        if isinstance(argument, int | float):
            argument = str(argument)
        found = _Sources({name: argument}, self._environ, self._profile).text(name)
        if found.value is None:
            return Setting(default, "default")
        try:
            number = float(found.value)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise ConfigurationError(
                f"{_called(name, found)}={found.value!r} is not a size in MB.",
                hint="Set it to a number that is not negative, such as 100.",
            )
        return Setting(number, found.source)


def _called(name: str, setting: Setting[T]) -> str:
    return name if setting.source == "argument" else setting.source


_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})
