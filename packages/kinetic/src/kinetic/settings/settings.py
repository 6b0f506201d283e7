"""Settings, each with its source: argument > `KINETIC_*` > active profile > default.

The only module that reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kinetic.errors import ConfigurationError
from kinetic.quantities import parse_number
from kinetic.settings.home import check_home

if TYPE_CHECKING:
    from kinetic.settings.profiles import Profile

T = TypeVar("T", covariant=True)

DEFAULT_ZONE = "us-central1-a"
DEFAULT_CLUSTER = "kinetic-cluster"
DEFAULT_NAMESPACE = "default"
_LONGEST = 86_400
"""The largest number of seconds of a setting."""


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A value and its source: `argument`, `KINETIC_ZONE`, `profile 'dev'` or `default`."""

    value: T
    source: str

    @property
    def is_default(self) -> bool:
        """Whether the user has not set it."""
        return self.source == "default"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting, resolved once."""

    project: Setting[str | None]
    zone: Setting[str]
    cluster: Setting[str]
    namespace: Setting[str]
    backend: Setting[str | None]
    store: Setting[str | None]
    output_dir: Setting[str | None]
    """None: a folder for each job."""
    image_builder: Setting[str | None]
    """`layers`, `cloud_build` or `docker`; None: the first one that can build the image."""
    build_secret: Setting[str | None]
    """A secret in Secret Manager with the logins that builds by Cloud Build need, as netrc; None: there is none."""
    image_repo: Setting[str | None]
    """Where bundled images are pushed: `HOST/PATH`; None: the cluster's repository in Artifact Registry."""
    base_image: Setting[str | None]
    """The image that bundled images are built on; None: the slim image of this Python on Docker Hub."""
    base_image_repo: Setting[str | None]
    """Where prebuilt images are."""
    node_cache: Setting[str | None]
    """A folder of nodes in which jobs in prebuilt mode share what they download; None: nothing is shared."""
    builds_store: Setting[str | None]
    """Where builds share records; None: the builds bucket of the cluster, if it exists."""
    kube_context: Setting[str | None]
    service_account: Setting[str | None]
    """None: the backend chooses."""
    pod_overrides: Setting[Mapping[str, Any]] = field(hash=False)
    pathways_server_image: Setting[str | None]
    """None here and below: the default of `PathwaysComponents`, which is Google's own."""
    pathways_proxy_image: Setting[str | None]
    pathways_tag: Setting[str | None]
    """The tag of both images, if they are not named."""
    pathways_scratch: Setting[str | None]
    """A folder in a bucket."""
    pathways_manager: Setting[str | None]
    """Resources of a container, such as `cpu=8,memory=32G`."""
    pathways_proxy: Setting[str | None]
    pathways_function: Setting[str | None]
    pathways_worker: Setting[str | None]
    pathways_head_selector: Setting[str | None]
    """Labels of nodes: `KEY=VALUE,…`."""
    pathways_head_tolerations: Setting[str | None]
    """Taints: `KEY=VALUE:EFFECT,…`."""
    pathways_head_topology: Setting[str | None]
    pathways_worker_selector: Setting[str | None]
    pathways_worker_tolerations: Setting[str | None]
    home: Setting[str]
    profiles_file: Setting[str]
    profile: Setting[str | None]
    package_root: Setting[str | None]
    no_default_excludes: Setting[bool]
    context_size_warn_mb: Setting[float]
    payload_size_warn_mb: Setting[float]
    store_timeout: Setting[float]
    """Seconds for which a submit waits for a store that cannot be reached."""
    trust_bucket: Setting[bool]
    rebuild: Setting[bool]
    """Whether to resolve dependencies again, and not to use those that were resolved before."""
    allow_sleep: Setting[bool]
    no_tty_debug: Setting[bool]
    """Whether a blocking call waits for a debugger although there is no terminal."""
    no_color: Setting[bool]

    @classmethod
    def from_environment(cls, *, profile: str | None = None, **arguments: str | None) -> Settings:
        """Resolve every setting from this process's environment.

        Raises:
            ConfigurationError: A variable, the profile or the profiles file is wrong.
        """
        return resolve(arguments, profile=profile, environ=os.environ)  # noqa: TID251 - this is the place

    def items(self) -> list[tuple[str, Setting[object]]]:
        """Return all settings by name."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def environment() -> dict[str, str]:
    """Return a copy of this process's environment."""
    return dict(os.environ)  # noqa: TID251 - this is the place


def working_folder() -> Path:
    """Return this process's working directory.

    Raises:
        ConfigurationError: It was deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigurationError(
            "The working directory of this process was deleted.",
            hint="Change to a folder that is there, and call again.",
        ) from None


def trusts_bucket() -> bool:
    """Return the current value of KINETIC_TRUST_BUCKET, which no profile sets."""
    return _Sources({}, os.environ, None).flag("KINETIC_TRUST_BUCKET").value  # noqa: TID251 - this is the place


def user_home() -> Path:
    """Return the home folder of this process's user; `/` if there is none, as in containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def expanded(text: str, source: str) -> Path:
    """Return *text*, the setting from *source*, as a path with `~` and `~user` expanded.

    Raises:
        ConfigurationError: There is no such user, or the user has no home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"{source} is {text!r}, and the home folder that ~ stands for is not known here.",
            hint="Write the path without ~, or set HOME.",
        ) from error


def _own_home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigurationError(
            "This process's user has no home folder for Kinetic to keep its files in: HOME is not set, "
            f"and the system does not know the user id {os.getuid()}.",
            hint="Set KINETIC_HOME to a folder in which this user may write.",
        ) from error


def resolve(
    arguments: Mapping[str, str | None],
    *,
    environ: Mapping[str, str],
    profile: str | None = None,
    user_home: Path | None = None,
) -> Settings:
    """Resolve every setting from *arguments*, *environ* and the profiles file. Empty is unset.

    Raises:
        ConfigurationError: A variable, the profile or the profiles file is wrong.
    """
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(set(arguments) - known):
        raise TypeError(f"There is no setting {unknown[0]!r}.")
    home = _first(
        _argument(arguments, "home"),
        _variable(environ, "KINETIC_HOME"),
    ) or Setting(str((user_home or _own_home()) / ".kinetic"), "default")
    home = Setting(str(expanded(home.value, home.source).absolute()), home.source)
    check_home(home.value)
    profiles_file = _variable(environ, "KINETIC_PROFILES_FILE") or Setting(
        str(Path(home.value) / "profiles.json"), home.source
    )
    profiles_file = Setting(
        str(expanded(profiles_file.value, profiles_file.source).absolute()), profiles_file.source
    )
    requested = Setting(profile, "argument") if profile else _variable(environ, "KINETIC_PROFILE")
    active = _active_profile(Path(profiles_file.value), requested)
    sources = _Sources(arguments, environ, active)
    pathways = {name: sources.text(name) for name in known if name.startswith("pathways_")}
    return Settings(
        project=sources.text("project", also="GOOGLE_CLOUD_PROJECT"),
        zone=sources.required("zone", DEFAULT_ZONE),
        cluster=sources.required("cluster", DEFAULT_CLUSTER),
        namespace=sources.required("namespace", DEFAULT_NAMESPACE),
        backend=sources.text("backend"),
        store=sources.text("store"),
        output_dir=sources.text("output_dir"),
        image_builder=sources.text("image_builder"),
        build_secret=sources.text("build_secret"),
        image_repo=sources.text("image_repo"),
        base_image=sources.text("base_image"),
        base_image_repo=sources.text("base_image_repo"),
        node_cache=sources.text("node_cache"),
        builds_store=sources.text("builds_store"),
        kube_context=sources.text("kube_context"),
        service_account=sources.text("service_account"),
        pod_overrides=_pod_overrides(active),
        **pathways,
        home=home,
        profiles_file=profiles_file,
        profile=_profile_setting(active, requested),
        package_root=sources.text("package_root"),
        no_default_excludes=sources.flag("KINETIC_NO_DEFAULT_EXCLUDES"),
        context_size_warn_mb=sources.number("KINETIC_CONTEXT_SIZE_WARN_MB", 100),
        payload_size_warn_mb=sources.number("KINETIC_PAYLOAD_SIZE_WARN_MB", 50),
        store_timeout=sources.seconds("store_timeout", 60),
        trust_bucket=sources.flag("KINETIC_TRUST_BUCKET"),
        rebuild=sources.flag("KINETIC_REBUILD"),
        allow_sleep=sources.flag("KINETIC_ALLOW_SLEEP"),
        no_tty_debug=sources.flag("KINETIC_NO_TTY_DEBUG"),
        # The convention has no KINETIC_ prefix and counts any value that is not empty: no-color.org.
        no_color=Setting(bool(environ.get("NO_COLOR")), "NO_COLOR")
        if environ.get("NO_COLOR")
        else Setting(False, "default"),
    )


class _Sources:
    def __init__(
        self,
        arguments: Mapping[str, str | None],
        environ: Mapping[str, str],
        profile: Profile | None,
    ) -> None:
        self._arguments = arguments
        self._environ = environ
        self._profile = profile

    def text(self, name: str, *, also: str | None = None) -> Setting[str | None]:
        found = _first(
            _argument(self._arguments, name),
            _variable(self._environ, f"KINETIC_{name.upper()}"),
            self._from_profile(name),
            _variable(self._environ, also) if also else None,
        )
        return found or Setting(None, "default")

    def required(self, name: str, default: str) -> Setting[str]:
        found = self.text(name)
        return (
            Setting(default, "default")
            if found.value is None
            else Setting(found.value, found.source)
        )

    def flag(self, variable: str) -> Setting[bool]:
        found = _variable(self._environ, variable)
        if found is None:
            return Setting(False, "default")
        truth = _TRUTHS.get(found.value.strip().lower())
        if truth is None:
            raise ConfigurationError(
                f"{variable} is {found.value!r}, which is neither yes nor no.",
                hint=f"Set {variable}=1, or unset it.",
            )
        return Setting(truth, variable)

    def number(self, variable: str, default: float) -> Setting[float]:
        found = _variable(self._environ, variable)
        if found is None:
            return Setting(default, "default")
        number = parse_number(found.value.strip())
        if number is None or number < 0:
            raise ConfigurationError(
                f"{variable} is {found.value!r}, which is not a number of megabytes.",
                hint=f"Set {variable}={default:g}, or unset it.",
            )
        return Setting(number, variable)

    def seconds(self, name: str, default: float) -> Setting[float]:
        found = self.text(name)
        if found.value is None:
            return Setting(default, "default")
        number = parse_number(found.value.strip())
        if number is None or not 1 <= number <= _LONGEST:
            raise ConfigurationError(
                f"{name} is {found.value!r} ({found.source}), which is not a number of seconds from 1 to "
                f"{_LONGEST}.",
                hint=f"Set KINETIC_{name.upper()}={default:g}, or unset it.",
            )
        return Setting(number, found.source)

    def _from_profile(self, name: str) -> Setting[str] | None:
        if self._profile is None:
            return None
        value = self._profile.values().get(name)
        return Setting(value, f"profile {self._profile.name!r}") if value else None


_TRUTHS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _argument(arguments: Mapping[str, str | None], name: str) -> Setting[str] | None:
    value = arguments.get(name)
    return Setting(value, "argument") if value else None


def _variable(environ: Mapping[str, str], name: str) -> Setting[str] | None:
    value = environ.get(name)
    return Setting(value, name) if value else None


def _first(*candidates: Setting[str] | None) -> Setting[str] | None:
    return next((found for found in candidates if found is not None), None)


def _active_profile(path: Path, requested: Setting[str] | None) -> Profile | None:
    # Without a file, skip the imports that reading it needs.
    if requested is None and _is_missing(path):
        return None
    from kinetic.settings.profiles import read_profiles

    profiles = read_profiles(path)
    if requested is not None:
        because = "--profile" if requested.source == "argument" else requested.source
        return profiles.find(requested.value, because=because)
    return profiles.active


def _pod_overrides(active: Profile | None) -> Setting[Mapping[str, Any]]:
    if active is None or not active.pod_overrides:
        return Setting({}, "default")
    return Setting(active.pod_overrides, f"profile {active.name!r}")


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # In a folder of another user, for instance: reading it reports why.
    return False


def _profile_setting(active: Profile | None, requested: Setting[str] | None) -> Setting[str | None]:
    if active is None:
        return Setting(None, "default")
    return Setting(active.name, requested.source if requested else "current")
