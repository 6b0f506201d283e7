"""`RegistryServer`: a registry of images on a port of this machine."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from kinetic_servers.http.faults import Faults
from kinetic_servers.http.server import HttpServer
from kinetic_servers.registry.access import Access
from kinetic_servers.registry.images import add_image
from kinetic_servers.registry.service import Options, RegistryService
from kinetic_servers.registry.storage import Storage


class RegistryServer(HttpServer):
    """A registry of images. Its faults hit one request unless they say how many.

    Without *access*, everybody may do everything. *options* are those of `Options`.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        access: Access | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        **options: bool,
    ) -> None:
        super().__init__(folder=folder, host=host, port=port, tls=tls)
        self.faults = Faults(times=1)
        self.access = access
        self._options = Options(**options)
        self._storage: Storage | None = None

    def service(self, folder: Path) -> RegistryService:
        self._storage = Storage(folder)
        return RegistryService(self._storage, self.access, self._options)

    def add_image(self, repository: str, tag: str, **image: Any) -> str:
        """Store an image without a request, and return its digest; see `images.add_image`."""
        return add_image(self.storage, repository, tag, **image)

    @property
    def storage(self) -> Storage:
        """The images, which can be read and changed without a request."""
        assert self._storage is not None, "the server is not running"
        return self._storage
