"""What Cloud Build refuses: requests that are not valid.

The rules are those of the documented API: https://cloud.google.com/build/docs/api/reference/rest/v1/projects.builds
and https://cloud.google.com/build/quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

REGIONS: Final = frozenset(
    {"global", "europe-west1", "europe-west4", "us-central1", "us-east1", "us-west1", "asia-east1"}
)
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_IMAGE: Final = re.compile(
    r"[a-z0-9.-]+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+(?::\w[\w.-]{0,127})?", re.ASCII
)
_VARIABLE: Final = re.compile(r"\$(?:\$|([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)\})")
_VOLUME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
_RESERVED: Final = ("/workspace", "/builder", "/var/run/docker.sock", "/kaniko")
"""Paths at which the service mounts something itself."""
_SECRET: Final = re.compile(
    r"projects/[^/]+/secrets/[\w-]{1,255}/versions/(?:latest|\d+)", re.ASCII
)
_ACCOUNT: Final = re.compile(r"projects/[^/]+/serviceAccounts/([^/@]+@[^/]+|\d+)")
_MOST_STEPS: Final = 300
_MOST_ARGUMENTS: Final = 100
_LONGEST_ARGUMENT: Final = 10_000
_LONGEST_TIMEOUT: Final = timedelta(hours=24)


def invalid(build: Any, builtin: Mapping[str, str]) -> str | None:
    """Return why the service would refuse *build*, a `Build`; None if it would not.

    *builtin* are the variables that the service replaces in texts.
    """
    return next(_problems(build, {**builtin, **build.substitutions}), None)


def replaced(text: str, variables: Mapping[str, str]) -> str:
    """Return *text* with variables replaced, and `$$` by `$`."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return "$" if name is None else variables[name]

    return _VARIABLE.sub(value, text)


def _problems(build: Any, variables: Mapping[str, str]) -> Iterator[str]:
    if not build.steps:
        yield "invalid build: must have at least one step"
    if len(build.steps) > _MOST_STEPS:
        yield f"invalid build: too many steps (max: {_MOST_STEPS})"
    source = build.source.storage_source
    if "storage_source" in build.source and not (source.bucket and source.object_):
        yield "invalid build source: storage source must have a bucket and an object"
    yield from _step_problems(build)
    yield from _secret_problems(build)
    yield from _volume_problems(build)
    for image in build.images:
        if not _IMAGE.fullmatch(replaced_or_kept(image, variables)):
            yield f"invalid image name {image!r}"
    for tag in build.tags:
        if not _TAG.fullmatch(tag):
            yield f"invalid build: invalid tag {tag!r}"
    if not timedelta(0) <= build.timeout <= _LONGEST_TIMEOUT:
        yield f"invalid build: build timeout {build.timeout} is too long or negative"
    yield from _logging_problems(build)
    for text in _templates(build):
        for found in _VARIABLE.finditer(text):
            name = found[1] or found[2]
            if name is not None and name not in variables:
                yield (
                    "invalid value for 'build.substitutions': key in the template "
                    f'"{name}" is not a valid built-in substitution'
                )


def replaced_or_kept(text: str, variables: Mapping[str, str]) -> str:
    """Return *text* with variables replaced, or as it is if one of them is unknown."""
    try:
        return replaced(text, variables)
    except KeyError:
        return text


def _step_problems(build: Any) -> Iterator[str]:
    known = {secret.env for secret in build.available_secrets.secret_manager}
    for number, step in enumerate(build.steps):
        if not step.name:
            yield f"invalid build: build step {number} must specify name"
        if len(step.args) > _MOST_ARGUMENTS:
            yield f"invalid build: build step {number} has too many args (max: {_MOST_ARGUMENTS})"
        if any(len(argument) > _LONGEST_ARGUMENT for argument in step.args):
            yield f"invalid build: build step {number} arg is too long (max: {_LONGEST_ARGUMENT})"
        if any("=" not in variable for variable in step.env):
            yield f"invalid build: build step {number} has an env that is not KEY=VALUE"
        for name in step.secret_env:
            if name not in known:
                yield f"invalid build: secretEnv {name!r} of step {number} is not defined"


def _secret_problems(build: Any) -> Iterator[str]:
    names = [secret.env for secret in build.available_secrets.secret_manager]
    used = {name for step in build.steps for name in step.secret_env}
    for secret in build.available_secrets.secret_manager:
        if not _SECRET.fullmatch(secret.version_name):
            yield f"invalid build: invalid secret version name {secret.version_name!r}"
        if secret.env not in used or names.count(secret.env) > 1:
            yield (
                f"invalid build: secret environment variable {secret.env!r} must be unique, and used by at "
                "least one build step"
            )


def _volume_problems(build: Any) -> Iterator[str]:
    mounted: list[str] = []
    for number, step in enumerate(build.steps):
        names = [volume.name for volume in step.volumes]
        paths = [volume.path.rstrip("/") for volume in step.volumes]
        mounted += set(names)
        if len({*names}) < len(names) or len({*paths}) < len(paths):
            yield f"invalid build: volumes of step {number} must have unique names and paths"
        for name, path in zip(names, paths, strict=True):
            if not _VOLUME.fullmatch(name):
                yield f"invalid build: invalid volume name {name!r}"
            if not path.startswith("/") or any(f"{path}/".startswith(f"{r}/") for r in _RESERVED):
                yield f"invalid build: volume path {path!r} of step {number} is not absolute, or reserved"
    for name in sorted({*mounted}):
        if mounted.count(name) < 2:
            yield f"invalid build: volume {name!r} is only used by one step"


def _logging_problems(build: Any) -> Iterator[str]:
    if build.logs_bucket and not build.logs_bucket.startswith("gs://"):
        yield f"invalid logs bucket {build.logs_bucket!r}"
    if not build.service_account:
        return
    if not _ACCOUNT.fullmatch(build.service_account):
        yield f"invalid build: invalid service account {build.service_account!r}"
    options = build.options
    elsewhere = options.logging.name in ("CLOUD_LOGGING_ONLY", "NONE")
    owned = options.default_logs_bucket_behavior.name == "REGIONAL_USER_OWNED_BUCKET"
    if not (build.logs_bucket or elsewhere or owned):
        yield (
            "if 'build.service_account' is specified, the build must either (a) specify 'build.logs_bucket', "
            "(b) use the REGIONAL_USER_OWNED_BUCKET build.options.default_logs_bucket_behavior option, or (c) "
            "use either CLOUD_LOGGING_ONLY / NONE logging options"
        )


def _templates(build: Any) -> Iterator[str]:
    yield from build.images
    yield build.logs_bucket
    for step in build.steps:
        yield from (step.name, step.entrypoint, *step.args, *step.env)
