"""`Registry`: the entry point to all registries of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kinetic_images.registry.client import Client
from kinetic_images.registry.credentials import Login
from kinetic_images.registry.names import Reference, parse_reference
from kinetic_images.registry.repository import Repository
from kinetic_payload.http.retry import RetryPolicy


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
        self._client = Client(environ, google, policy)

    def repository(self, name: str | Reference) -> Repository:
        """Return the repository `HOST/PATH`; a tag or digest in *name* is ignored.

        Raises:
            InvalidReferenceError: *name* is no name of an image.
        """
        reference = parse_reference(name) if isinstance(name, str) else name
        return Repository(self._client, reference)

    def digest(self, image: str) -> str | None:
        """Return the digest of *image* (`HOST/PATH:TAG`); None if its registry says that there is none.

        Raises:
            InvalidReferenceError: *image* is no name of an image.
            RegistryError: The registry cannot be queried.
        """
        reference = parse_reference(image)
        return reference.digest or self.repository(reference).digest(reference.version)
