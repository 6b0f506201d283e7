"""Settings, each with its source: argument > `KINETIC_*` > named profile > `kinetic.toml` > current profile > default.

The only module that reads the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kinetic.errors import ConfigurationError
from kinetic.quantities import parse_number
from kinetic.settings.home import check_home
from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from kinetic.settings.profiles import Profile

T = TypeVar("T", covariant=True)

DEFAULT_ZONE = "us-central1-a"
DEFAULT_CLUSTER = "kinetic-cluster"
DEFAULT_NAMESPACE = "default"
_DEFAULTS = {"zone": DEFAULT_ZONE, "cluster": DEFAULT_CLUSTER, "namespace": DEFAULT_NAMESPACE}
"""The settings that have a default, if they are text."""
_FLAGS = (
    "no_default_excludes",
    "trust_bucket",
    "rebuild",
    "allow_sleep",
    "no_tty_debug",
    "assume_yes",
)
_NUMBERS = {
    "context_size_warn_mb": (100.0, 0.0, math.inf, "a number of megabytes"),
    "payload_size_warn_mb": (50.0, 0.0, math.inf, "a number of megabytes"),
    "local_jobs": (0.0, 0.0, 10_000.0, "a number of jobs from 1; 0 is the default"),
    "jax_initialization_timeout": (300.0, 1.0, 86_400.0, "a number of seconds from 1 to 86400"),
    "store_timeout": (60.0, 1.0, 86_400.0, "a number of seconds from 1 to 86400"),
}
"""The default of a setting that is a number, its limits, and what it is."""
_CHOICES = {"progress": ("auto", "plain", "off"), "traceback": ("short", "full")}
"""The values of a setting; the first one is the default."""
_TRUTHS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


@frozen()
class Setting(Generic[T]):
    """A value and its source: `argument`, `KINETIC_ZONE`, `profile 'dev'` or `default`."""

    value: T
    source: str

    @property
    def is_default(self) -> bool:
        """Whether the user has not set it."""
        return self.source == "default"


@frozen(kw_only=True)
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
    local_jobs: Setting[float]
    """How many jobs run on this machine at once, and how many inputs of one batch; 0: four jobs for each core, at least
    eight, and one input."""
    jax_initialization_timeout: Setting[float]
    """Seconds for which JAX tries to connect the hosts of a job, once all are there."""
    store_timeout: Setting[float]
    """Seconds for which a submit waits for a store that cannot be reached."""
    trust_bucket: Setting[bool]
    rebuild: Setting[bool]
    """Whether to resolve dependencies again, and not to use those that were resolved before."""
    allow_sleep: Setting[bool]
    no_tty_debug: Setting[bool]
    """Whether a blocking call waits for a debugger although there is no terminal."""
    assume_yes: Setting[bool]
    """Whether to start very many inputs on accelerators without asking."""
    no_color: Setting[bool]
    progress: Setting[str]
    """What a blocking call shows besides warnings and the log: `auto`, `plain` lines as in a file, or `off`."""
    traceback: Setting[str]
    """`full` shows Kinetic's own frames, and the traceback of a job in its log as well; else `short`."""

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
    return _Sources({}, os.environ).flag("trust_bucket").value  # noqa: TID251 - this is the place


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
    file: Mapping[str, str] = {},
    user_home: Path | None = None,
) -> Settings:
    """Resolve every setting from *arguments*, *environ*, *file* and the profiles file. Empty is unset.

    *file* are the settings of a `kinetic.toml`; a profile comes before it only if it is named.

    Raises:
        ConfigurationError: A variable, the profile or the profiles file is wrong.
    """
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(set(arguments) - known):
        raise TypeError(f"There is no setting {unknown[0]!r}.")
    sources = _Sources({**arguments, "profile": profile}, environ, file)
    home = sources.path("home", lambda: (user_home or _own_home()) / ".kinetic", "default")
    check_home(home.value)
    profiles_file = sources.path(
        "profiles_file", lambda: Path(home.value) / "profiles.json", home.source
    )
    requested = sources.text("profile")
    active = sources.profile = _active_profile(Path(profiles_file.value), requested)
    found: dict[str, Setting[Any]] = {name: sources.text(name) for name in known}
    for name, default in _DEFAULTS.items():
        if found[name].value is None:
            found[name] = Setting(default, "default")
    found |= {name: sources.flag(name) for name in _FLAGS}
    found |= {name: sources.number(name) for name in _NUMBERS}
    found |= {name: sources.choice(name) for name in _CHOICES}
    found |= {"home": home, "profiles_file": profiles_file}
    found["project"] = sources.text("project", also="GOOGLE_CLOUD_PROJECT")
    found["pod_overrides"] = found["profile"] = Setting(None, "default")
    if active is not None:
        found["profile"] = Setting(active.name, requested.source if requested.value else "current")
        found["pod_overrides"] = sources.of_profile("pod_overrides")
    if found["pod_overrides"].value is None:
        found["pod_overrides"] = Setting({}, "default")
    # The convention has no KINETIC_ prefix and counts any value that is not empty: no-color.org.
    no_color = bool(environ.get("NO_COLOR"))
    found["no_color"] = Setting(no_color, "NO_COLOR" if no_color else "default")
    return Settings(**found)


class _Sources:
    def __init__(
        self,
        arguments: Mapping[str, str | None],
        environ: Mapping[str, str],
        file: Mapping[str, str] = {},
    ) -> None:
        self._arguments = arguments
        self._environ = environ
        self._file = file
        self.profile: Profile | None = None

    def text(self, name: str, *, also: str = "") -> Setting[str | None]:
        """Return the first value that is not empty; *also* is another variable, the last source."""
        variable = f"KINETIC_{name.upper()}"
        in_profile = self.of_profile(name)
        shared = [
            (self._file.get(name), "kinetic.toml"),
            (in_profile.value, in_profile.source),
        ]
        named = self._arguments.get("profile") or self._environ.get("KINETIC_PROFILE")
        for value, source in (
            (self._arguments.get(name), "argument"),
            (self._environ.get(variable), variable),
            *(reversed(shared) if named else shared),
            (self._environ.get(also), also),
        ):
            if value:
                return Setting(value, source)
        return Setting(None, "default")

    def of_profile(self, name: str) -> Setting[Any]:
        if self.profile is None:
            return Setting(None, "default")
        return Setting(self.profile.settings.get(name), f"profile {self.profile.name!r}")

    def path(self, name: str, default: Callable[[], Path], source: str) -> Setting[str]:
        found = self.text(name)
        if found.value is None:
            return Setting(str(default().absolute()), source)
        return Setting(str(expanded(found.value, found.source).absolute()), found.source)

    def flag(self, name: str) -> Setting[bool]:
        found = self.text(name)
        if found.value is None:
            return Setting(False, "default")
        truth = _TRUTHS.get(found.value.strip().lower())
        if truth is None:
            raise ConfigurationError(
                f"{name} is {found.value!r} ({found.source}), which is neither yes nor no.",
                hint=f"Set KINETIC_{name.upper()}=1, or unset it.",
            )
        return Setting(truth, found.source)

    def choice(self, name: str) -> Setting[str]:
        known = _CHOICES[name]
        found = self.text(name)
        value = (found.value or known[0]).strip().lower()
        if value not in known:
            raise ConfigurationError(
                f"{name} is {found.value!r} ({found.source}), which is none of: {', '.join(known)}.",
                hint=f"Set KINETIC_{name.upper()}={known[0]}, or unset it.",
            )
        return Setting(value, found.source)

    def number(self, name: str) -> Setting[float]:
        default, least, most, what = _NUMBERS[name]
        found = self.text(name)
        if found.value is None:
            return Setting(default, "default")
        number = parse_number(found.value.strip())
        if number is None or not least <= number <= most:
            raise ConfigurationError(
                f"{name} is {found.value!r} ({found.source}), which is not {what}.",
                hint=f"Set KINETIC_{name.upper()}={default:g}, or unset it.",
            )
        return Setting(number, found.source)


def _active_profile(path: Path, requested: Setting[str | None]) -> Profile | None:
    if requested.value is None:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None  # Without a file, skip the imports that reading it needs.
        except OSError:
            pass  # In a folder of another user, for instance: reading it reports why.
    from kinetic.settings.profiles import read_profiles

    profiles = read_profiles(path)
    if requested.value is not None:
        because = "--profile" if requested.source == "argument" else requested.source
        return profiles.find(requested.value, because=because)
    return profiles.active
