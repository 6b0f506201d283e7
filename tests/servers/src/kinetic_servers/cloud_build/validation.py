"""What Cloud Build refuses in requests of Kinetic that settings or its own code could make wrong.

The rules are those of the documented API: https://cloud.google.com/build/docs/api/reference/rest/v1/projects.builds
and https://cloud.google.com/build/quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

REGIONS: Final = frozenset(
    {"global", "europe-west1", "europe-west4", "us-central1", "us-east1", "us-west1", "asia-east1"}
)
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_VARIABLE: Final = re.compile(r"\$(?:\$|([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)\})")
_SECRET: Final = re.compile(
    r"projects/[^/]+/secrets/[\w-]{1,255}/versions/(?:latest|\d+)", re.ASCII
)


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
    yield from _secret_problems(build)
    volumes = [volume.name for step in build.steps for volume in step.volumes]
    for name in sorted({*volumes}):
        if volumes.count(name) < 2:
            yield f"invalid build: volume {name!r} is only used by one step"
    for tag in build.tags:
        if not _TAG.fullmatch(tag):
            yield f"invalid build: invalid tag {tag!r}"
    if build.service_account and not build.logs_bucket.startswith("gs://"):
        yield "if 'build.service_account' is specified, the build must either specify 'build.logs_bucket' or …"
    for text in _templates(build):
        for found in _VARIABLE.finditer(text):
            name = found[1] or found[2]
            if name is not None and name not in variables:
                yield (
                    "invalid value for 'build.substitutions': key in the template "
                    f'"{name}" is not a valid built-in substitution'
                )


def _secret_problems(build: Any) -> Iterator[str]:
    names = [secret.env for secret in build.available_secrets.secret_manager]
    used = {name for step in build.steps for name in step.secret_env}
    for name in sorted(used - {*names}):
        yield f"invalid build: secretEnv {name!r} is not defined"
    for secret in build.available_secrets.secret_manager:
        if not _SECRET.fullmatch(secret.version_name):
            yield f"invalid build: invalid secret version name {secret.version_name!r}"
        if secret.env not in used or names.count(secret.env) > 1:
            yield (
                f"invalid build: secret environment variable {secret.env!r} must be unique, and used by at "
                "least one build step"
            )


def _templates(build: Any) -> Iterator[str]:
    yield from build.images
    yield build.logs_bucket
    for step in build.steps:
        yield from (step.name, step.entrypoint, *step.args, *step.env)
