"""`Registry`: the entry point to all registries of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from kinetic_images.errors import RegistryError
from kinetic_images.registry.addresses import Addresses
from kinetic_images.registry.client import Client
from kinetic_images.registry.credentials import Credentials, Login
from kinetic_images.registry.names import Reference, parse_reference
from kinetic_images.registry.repository import Repository
from kinetic_payload.http.retry import RetryPolicy
from kinetic_payload.http.session import Session


class Registry:
    """All registries. A process needs one: it keeps connections and tokens. Threads can share it.

    *environ* names docker's configuration (`DOCKER_CONFIG`, `HOME`), certificates (`SSL_CERT_FILE`,
    `REQUESTS_CA_BUNDLE`), proxies, and the PATH on which credential helpers are found; None: the environment of
    this process. *google* returns the login to registries of Google's, by default from the Application Default
    Credentials. *policy* limits how long requests are retried.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        google: Callable[[], Login | None] | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        # docker and its helpers are configured by the environment that they inherit.
        found = os.environ if environ is None else environ  # noqa: TID251
        self._client = Client(
            session=Session(found, failure=RegistryError, proxies=environ),
            addresses=Addresses(found),
            credentials=Credentials(found, google=google),
            policy=policy or RetryPolicy(),
        )

    def repository(self, name: str | Reference) -> Repository:
        """Return the repository `HOST/PATH`; a tag or digest in *name* is ignored.

        Raises:
            InvalidReferenceError: *name* is no name of an image.
        """
        reference = parse_reference(name) if isinstance(name, str) else name
        return Repository(self._client, reference)
