"""Where and how Cloud Build builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from kinetic_images.errors import BuildInputError

_SECRET: Final = re.compile(r"[\w-]{1,255}", re.ASCII)
_VERSION: Final = re.compile(
    r"projects/[a-z0-9:.-]+/secrets/[\w-]{1,255}/versions/(?:latest|[0-9]+)", re.ASCII
)
"""https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions"""


@dataclass(frozen=True, kw_only=True)
class RegistryLogin:
    """The login for a registry outside Google Cloud, such as Docker Hub."""

    host: str
    """The registry's host; `docker.io` is Docker Hub."""
    user: str
    secret_version: str
    """The place of the password or token in Secret Manager: `projects/P/secrets/S/versions/V`."""


@dataclass(frozen=True, kw_only=True)
class CloudBuildSettings:
    """Where and how Cloud Build builds."""

    project: str
    region: str = "global"
    """The region of the build's machine; near the registry, pushes are faster. `global`: any."""
    service_account: str = ""
    """The e-mail address of the account of builds; empty: the project's default account.

    It needs `roles/artifactregistry.writer`, and read and write access to the builds bucket.
    """
    timeout: timedelta = timedelta(minutes=30)
    """After this time Cloud Build ends the build; without the time in the queue."""
    queue_limit: timedelta = timedelta(hours=1)
    """After this time in the queue the build expires."""
    secret_versions: Mapping[str, str] = field(default_factory=dict)
    """Build secrets (`netrc`, `ca`) → their place in Secret Manager: `projects/P/secrets/S/versions/V`."""
    registry_login: RegistryLogin | None = None
    """None: the images are pushed to a registry of the project, to which builds are logged in."""
    endpoint: str | None = None
    """Another address of the API; `http://HOST:PORT` without encryption and credentials, for tests."""

    @property
    def parent(self) -> str:
        """The name of the project and region in the API."""
        return f"projects/{self.project}/locations/{self.region}"


def secret_version(text: str, project: str) -> str:
    """Return the version of a secret that *text* names: the name of a secret in *project*, or the version itself.

    Raises:
        BuildInputError: It names neither. The message does not contain it: it may be the secret.
    """
    if _SECRET.fullmatch(text):
        return f"projects/{project}/secrets/{text}/versions/latest"
    if _VERSION.fullmatch(text):
        return text
    raise BuildInputError(
        "This is not the name of a secret in Secret Manager.",
        hint="Write its name, or projects/PROJECT/secrets/NAME/versions/VERSION. Never write what it contains.",
    )
