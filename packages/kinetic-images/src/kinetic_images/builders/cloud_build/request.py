"""The request for a build, as plain data: the fields of `google.devtools.cloudbuild.v1.Build`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.builders.dockerfile.container_build import FRESH, ContainerBuild
from kinetic_images.builders.dockerfile.secrets import NETRC_SECRET
from kinetic_images.registry.names import parse_reference
from kinetic_payload.layout import BUILD_LOGS
from kinetic_payload.stores.store import Location

_DOCKER_IMAGE: Final = "gcr.io/cloud-builders/docker"
"""The published image of the step that runs docker. It is logged in to the project's registries."""
_TOKEN_IMAGE: Final = "gcr.io/cloud-builders/gcloud"  # noqa: S105 - an image
"""The published image of the step that obtains a token of the account of the build."""
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


def build_request(
    build: ContainerBuild,
    source: str,
    location: Location,
    settings: CloudBuildSettings,
    *,
    mark: str,
    token_hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the request for *build* of the archive *source* in the bucket at *location*.

    *mark* is a tag by which this request can be found again. The build logs in to *token_hosts* with a token of
    its own account. The image and its cache are pushed after the step has succeeded. Layers that an earlier
    image has are taken from the cache: workers keep none.
    """
    bucket, _, prefix = location.path.partition("/")
    folder = f"{prefix}/" if prefix else ""
    image = parse_reference(build.image)
    cache = f"{image.repository}:buildcache-{build.platform.rpartition('/')[2]}"
    login = settings.registry_login
    steps = [_step(build, settings, cache, token_hosts)]
    if token_hosts:
        # Docker's BuildKit has no network in which a RUN could ask for a token itself.
        volumes = {"volumes": [{"name": "kinetic-login", "path": _LOGIN}]}
        steps = [_shell("token", _TOKEN_IMAGE, _GET_TOKEN) | volumes, steps[0] | volumes]
    if login is not None:
        # Steps share the home folder, and so docker's logins.
        log_in = _shell("login", _DOCKER_IMAGE, _LOG_IN, "login", login.user, login.host)
        steps.insert(0, log_in | {"secret_env": [_PASSWORD]})
        steps += [
            {"id": name, "name": _DOCKER_IMAGE, "args": ["push", _escaped(image)]}
            for name, image in (("push-cache", cache), ("push", build.image))
        ]
    request: dict[str, Any] = {
        "source": {
            # No generation: the name is the digest of the contents.
            "storage_source": {"bucket": bucket, "object_": f"{folder}{source}"}
        },
        "steps": steps,
        "timeout": f"{settings.timeout.total_seconds():.0f}s",
        "queue_ttl": f"{settings.queue_limit.total_seconds():.0f}s",
        "tags": ["kinetic", f"image-{image.tag}", mark],
        "logs_bucket": f"gs://{bucket}/{folder}{BUILD_LOGS}",
        "options": {
            "logging": "GCS_ONLY",
            "log_streaming_option": "STREAM_ON",
            "machine_type": "E2_HIGHCPU_8",
        },
    }
    if login is None:  # Where Cloud Build is logged in to the registry itself.
        request["images"] = [build.image, cache]
    if settings.service_account:
        account = settings.service_account
        request["service_account"] = f"projects/{settings.project}/serviceAccounts/{account}"
    versions = {
        _variable(name): version for name, version in sorted(settings.secret_versions.items())
    }
    if login is not None:
        versions[_PASSWORD] = login.secret_version
    if versions:
        request["available_secrets"] = {
            "secret_manager": [
                {"version_name": version, "env": name} for name, version in versions.items()
            ]
        }
    return request


def _step(
    build: ContainerBuild, settings: CloudBuildSettings, cache: str, token_hosts: Sequence[str]
) -> dict[str, Any]:
    arguments = [
        *("--progress=plain", f"--platform={build.platform}"),
        *(f"--tag={build.image}", f"--tag={cache}"),
        *(FRESH if build.fresh else (f"--cache-from={cache}",)),
        "--build-arg=BUILDKIT_INLINE_CACHE=1",
        *(f"--label={key}={value}" for key, value in sorted(build.labels.items())),
        *(f"--file={build.context.dockerfile}", "."),
    ]
    stored = sorted(settings.secret_versions)
    names = sorted({*stored, NETRC_SECRET}) if token_hosts else stored
    env = {"env": ["DOCKER_BUILDKIT=1"]}
    if not names:
        args = [*map(_escaped, ["build", *arguments])]
        return {"id": "build", "name": _DOCKER_IMAGE, "args": args, **env}
    writes = "".join(f'printf %s "${_variable(name)}" > "$d/{name}"; ' for name in stored)
    if token_hosts:
        writes += _ADD_TOKEN.format(hosts=" ".join(token_hosts))
    given = "".join(f'--secret=id={name},src="$d/{name}" ' for name in names)
    script = _WITH_SECRETS.format(writes=writes, given=given)
    secret_env = {"secret_env": [*map(_variable, stored)]} if stored else {}
    return _shell("build", _DOCKER_IMAGE, script, "build", *arguments) | env | secret_env


def _shell(name: str, image: str, script: str, *arguments: str) -> dict[str, Any]:
    """Return a step that runs *script*, whose `$0`, `$1`, … are *arguments*."""
    args = [*map(_escaped, ["-c", script, *arguments])]
    return {"id": name, "name": image, "entrypoint": "bash", "args": args}


def _variable(name: str) -> str:
    return f"KN_SECRET_{name.upper()}"


def _escaped(text: str) -> str:
    """Return *text* for a field in which Cloud Build replaces variables."""
    return text.replace("$", "$$")
