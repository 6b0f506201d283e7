"""The request for a build, as plain data: the fields of `google.devtools.cloudbuild.v1.Build`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.builders.dockerfile.container_build import FRESH
from kinetic_images.builders.dockerfile.instructions import NETRC_SECRET
from kinetic_images.builders.image_lookup import split_image
from kinetic_payload.layout import BUILD_LOGS
from kinetic_payload.stores.store import Location

_WITH_SECRETS: Final = 'set -eu; umask 077; d=$(mktemp -d); {writes}exec docker build {given}"$@"'
"""A shell command: secrets become files in the container of the step, for BuildKit."""

_LOGIN: Final = "/kinetic-login"
"""A volume of the steps that obtain and use a token: it is in neither the workspace nor the context."""
_GET_TOKEN: Final = (
    f"set -eu; umask 077; gcloud auth print-access-token > {_LOGIN}/token; test -s {_LOGIN}/token"
)
_ADD_TOKEN: Final = (
    f"token=$(cat {_LOGIN}/token); for host in {{hosts}}; do "
    f'grep -qsE "machine[[:space:]]+$host([[:space:]]|$)" "$d/{NETRC_SECRET}" || '
    '{{ echo; echo "machine $host login oauth2accesstoken password $token"; }} '
    f'>> "$d/{NETRC_SECRET}"; done; '
)
"""A login for such a host that the user has stored takes precedence."""

_PASSWORD: Final = "KN_REGISTRY_PASSWORD"  # noqa: S105 - a name
_LOG_IN: Final = (
    f'set -euo pipefail; printf %s "${_PASSWORD}" | '
    'docker login --username="$1" --password-stdin "$2"'
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A build context in a bucket."""

    location: Location
    object: str
    """The name of the archive in the store at `location`."""


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """What is built, from what."""

    image: str
    """`HOST/PATH:TAG`"""
    source: Source
    platform: str
    """`linux/amd64`"""
    dockerfile: str = "Dockerfile"
    labels: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    """Whether to use no results of earlier builds."""
    token_hosts: tuple[str, ...] = ()
    """Hosts that the build logs in to with a token of its own account."""


def build_request(build: ImageBuild, settings: CloudBuildSettings, mark: str) -> dict[str, Any]:
    """Return the request for *build*; *mark* is a tag by which this request can be found again.

    The image and its cache are pushed after the step has succeeded. Layers that an earlier image has are
    taken from the cache: workers keep none.
    """
    bucket, _, prefix = build.source.location.path.partition("/")
    folder = f"{prefix}/" if prefix else ""
    repository, tag = split_image(build.image)
    cache = f"{repository}:buildcache-{build.platform.rpartition('/')[2]}"
    request: dict[str, Any] = {
        "source": {
            # No generation: the name is the digest of the contents.
            "storage_source": {"bucket": bucket, "object_": f"{folder}{build.source.object}"}
        },
        **_steps(build, settings, cache),
        "timeout": _seconds(settings.timeout.total_seconds()),
        "queue_ttl": _seconds(settings.queue_limit.total_seconds()),
        "tags": ["kinetic", f"image-{tag}", mark, *settings.tags],
        "logs_bucket": f"gs://{bucket}/{folder}{BUILD_LOGS}",
        "options": {
            "logging": "GCS_ONLY",
            "log_streaming_option": "STREAM_ON",
            "machine_type": settings.machine_type,
        },
    }
    if settings.service_account:
        account = settings.service_account
        request["service_account"] = f"projects/{settings.project}/serviceAccounts/{account}"
    versions = {
        _variable(name): version for name, version in sorted(settings.secret_versions.items())
    }
    if settings.registry_login is not None:
        versions[_PASSWORD] = settings.registry_login.secret_version
    if versions:
        request["available_secrets"] = {
            "secret_manager": [
                {"version_name": version, "env": name} for name, version in versions.items()
            ]
        }
    return request


def _steps(build: ImageBuild, settings: CloudBuildSettings, cache: str) -> dict[str, Any]:
    """Return the fields `steps` and, where Cloud Build is logged in to the registry itself, `images`."""
    steps, login = [*_build_steps(build, settings, cache)], settings.registry_login
    if login is None:
        return {"steps": steps, "images": [build.image, cache]}
    # Steps share the home folder, and so docker's logins.
    log_in = {
        "id": "login",
        "name": settings.step_image,
        "entrypoint": "bash",
        "args": list(map(_escaped, ["-c", _LOG_IN, "login", login.user, login.host])),
        "secret_env": [_PASSWORD],
    }
    pushes = [
        {"id": name, "name": settings.step_image, "args": list(map(_escaped, ["push", image]))}
        for name, image in (("push-cache", cache), ("push", build.image))
    ]
    return {"steps": [log_in, *steps, *pushes]}


def _build_steps(
    build: ImageBuild, settings: CloudBuildSettings, cache: str
) -> Iterator[dict[str, Any]]:
    step = _step(build, settings, cache)
    if not build.token_hosts:
        yield step
        return
    # Docker's BuildKit has no network in which a RUN could ask for a token itself.
    volumes = [{"name": "kinetic-login", "path": _LOGIN}]
    yield {
        "id": "token",
        "name": settings.token_image,
        "entrypoint": "bash",
        "args": list(map(_escaped, ["-c", _GET_TOKEN])),
        "volumes": volumes,
    }
    yield step | {"volumes": volumes}


def _step(build: ImageBuild, settings: CloudBuildSettings, cache: str) -> dict[str, Any]:
    arguments = [
        *("--progress=plain", f"--platform={build.platform}"),
        *(f"--tag={build.image}", f"--tag={cache}"),
        *(FRESH if build.fresh else (f"--cache-from={cache}",)),
        "--build-arg=BUILDKIT_INLINE_CACHE=1",
        *(f"--label={key}={value}" for key, value in sorted(build.labels.items())),
        *(f"--file={build.dockerfile}", "."),
    ]
    step: dict[str, Any] = {
        "id": "build",
        "name": settings.step_image,
        "env": ["DOCKER_BUILDKIT=1"],
    }
    stored = sorted(settings.secret_versions)
    names = sorted({*stored, NETRC_SECRET}) if build.token_hosts else stored
    if not names:
        return step | {"args": list(map(_escaped, ["build", *arguments]))}
    writes = "".join(f'printf %s "${_variable(name)}" > "$d/{name}"; ' for name in stored)
    if build.token_hosts:
        writes += _ADD_TOKEN.format(hosts=" ".join(build.token_hosts))
    given = "".join(f'--secret=id={name},src="$d/{name}" ' for name in names)
    script = _WITH_SECRETS.format(writes=writes, given=given)
    return step | {
        "entrypoint": "bash",
        "args": list(map(_escaped, ["-c", script, "build", *arguments])),
        **({"secret_env": list(map(_variable, stored))} if stored else {}),
    }


def _variable(name: str) -> str:
    return f"KN_SECRET_{name.upper()}"


def _escaped(text: str) -> str:
    """Return *text* for a field in which Cloud Build replaces variables."""
    return text.replace("$", "$$")


def _seconds(seconds: float) -> str:
    return f"{int(seconds)}s"
