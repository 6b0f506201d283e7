"""`RegistryServer`: a registry of images on a port of this machine."""

from __future__ import annotations

import ssl
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from kinetic_images.testing.registry.access import Access
from kinetic_images.testing.registry.api import Api
from kinetic_images.testing.registry.faults import Faults
from kinetic_images.testing.registry.images import add_image
from kinetic_images.testing.registry.requests import Requests
from kinetic_images.testing.registry.storage import Storage
from kinetic_images.testing.registry.web import Web


class RegistryServer:
    """A registry that stores images below *folder* (a temporary one by default) until it stops.

    Without *access*, everybody may do everything. With *tls*, it speaks HTTPS. Of the options, *mounts* are
    blobs from other repositories, *chunked* allows uploads by PATCH, *digest_header* is
    `Docker-Content-Digest`, and *absolute* gives addresses with scheme and host. *redirect_blobs* sends readers of
    blobs to `localhost`: the same server under another name, which must not get credentials.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        access: Access | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        mounts: bool = True,
        chunked: bool = True,
        digest_header: bool = True,
        absolute: bool = True,
        redirect_blobs: bool = False,
    ) -> None:
        self.faults = Faults()
        self.requests = Requests()
        self.access = access
        self._folder = folder
        self._address = (host, port)
        self._tls = tls
        self._redirect_blobs = redirect_blobs
        self._options = {
            "mounts": mounts,
            "chunked": chunked,
            "digest_header": digest_header,
            "absolute": absolute,
        }
        self._closing = ExitStack()
        self._storage: Storage | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server."""
        temporary = tempfile.TemporaryDirectory(
            prefix="kinetic-registry-", dir=self._folder, ignore_cleanup_errors=True
        )
        self._storage = Storage(Path(self._closing.enter_context(temporary)))
        api = Api(self._storage, blob_host="", **self._options)
        web = Web(
            self._address,
            api=api,
            access=self.access,
            faults=self.faults,
            requests=self.requests,
            tls=self._tls,
        )
        self._address = (self._address[0], web.server_address[1])
        if self._redirect_blobs:
            api.blob_host = f"http://localhost:{self.port}"
        thread = threading.Thread(
            target=web.serve_forever, args=(0.05,), name="registry", daemon=True
        )
        thread.start()
        # In the opposite order: stalled requests end when their connections are broken already.
        self._closing.callback(self.faults.clear)
        self._closing.callback(web.server_close)
        self._closing.callback(web.close_all)
        self._closing.callback(thread.join)
        self._closing.callback(web.shutdown)

    def stop(self) -> None:
        """Break all connections, and remove all images."""
        self._closing.close()

    def add_image(
        self,
        repository: str,
        tag: str,
        *,
        architectures: Sequence[str] = ("amd64",),
        settings: Mapping[str, Any] | None = None,
        layers: Sequence[Mapping[str, bytes]] = ({"hello.txt": b"hello\n"},),
        docker: bool = False,
    ) -> str:
        """Store an image without a request, and return its digest; see `images.add_image`."""
        return add_image(
            self.storage,
            repository,
            tag,
            architectures=architectures,
            settings=settings,
            layers=layers,
            docker=docker,
        )

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._address[1]

    @property
    def host(self) -> str:
        """The host with the port, as the names of images have it: `127.0.0.1:PORT`."""
        return f"{self._address[0]}:{self.port}"

    @property
    def storage(self) -> Storage:
        """The images, which can be read and changed without a request."""
        assert self._storage is not None, "the server is not running"
        return self._storage
