"""Repositories of a registry: look up images, read blobs, and push."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final
from urllib.parse import urlencode

from kinetic_images.errors import (
    ImageNotFoundError,
    InvalidImageError,
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
)
from kinetic_images.registry.blobs import open_blob
from kinetic_images.registry.client import Client
from kinetic_images.registry.names import Reference, is_digest
from kinetic_images.registry.oci import (
    INDEXES,
    MANIFESTS,
    ImageConfig,
    Index,
    Manifest,
    digest_of,
    parse_config,
    parse_manifest,
)
from kinetic_images.registry.refusals import Call, Right
from kinetic_images.registry.uploads import cancel, location_of, upload_blob
from kinetic_payload.http.session import Outgoing, Response
from kinetic_payload.progress import Advance

LARGEST_MANIFEST: Final = 4 << 20
"""The most bytes of a manifest; registries accept no larger ones."""
LARGEST_BLOB: Final = 8 << 20
"""The most bytes of a blob that is read as a whole, in memory."""
_LARGEST_CONFIG: Final = 2 << 20
"""As Python objects, a configuration takes up to 60 times as much memory."""
_ACCEPT: Final = ", ".join((*MANIFESTS, *INDEXES))
"""Without them, a registry responds with 404, or with a manifest in docker's first format."""


@dataclass(frozen=True)
class FetchedManifest:
    """A manifest or an index as the registry stores it. Its bytes have its digest."""

    digest: str
    media_type: str
    data: bytes = field(repr=False)
    parsed: Manifest | Index = field(repr=False)


@dataclass(frozen=True)
class RemoteImage:
    """An image in a registry, for one platform."""

    digest: str
    """The digest of the platform's manifest."""
    manifest: Manifest
    config: ImageConfig


class Repository:
    """The images `HOST/PATH` of one registry. Threads can share it.

    Besides the errors that are named below, each call raises:
    `RegistryLoginError` if the registry accepts no credentials,
    `RegistryPermissionError` if they lack a right,
    `RegistryUnavailableError` if there is no usable response within the time limit, and
    `RegistryError` for other refusals.
    """

    def __init__(self, client: Client, reference: Reference) -> None:
        self._client = client
        self.reference = Reference(host=reference.host, path=reference.path)

    def __str__(self) -> str:
        return self.reference.repository

    def digest(self, tag: str) -> str | None:
        """Return the digest of the image with *tag*; None if the registry says that there is none."""
        version = self._version(tag)
        call = self._call(f"look for the image {version}")
        request = self._manifest_request(call, "HEAD", version)
        response = self._client.send(call, request, accept=(404,))
        if response.status == 404:
            return None
        named = response.headers.get("Docker-Content-Digest", "")
        if is_digest(named):
            return named
        found = self.manifest(version)
        return found.digest if found else None

    def manifest(self, reference: str) -> FetchedManifest | None:
        """Return the manifest with a tag or digest; None if the registry says that there is none.

        Raises:
            InvalidImageError: Its bytes do not have its digest, or it is no manifest.
        """
        version = self._version(reference)
        call = self._call(f"read the manifest {version}")
        response = self._client.send(
            call,
            self._manifest_request(call, "GET", version),
            accept=(404,),
            most=LARGEST_MANIFEST,
        )
        if response.status == 404:
            return None
        digest = digest_of(response.data)
        for named in (version, response.headers.get("Docker-Content-Digest", "")):
            if is_digest(named) and named != digest:
                raise InvalidImageError(
                    f"Could not {call}: its bytes have the digest {digest}, but it is named {named}.",
                    hint="A proxy may have changed the response. Try again, or ask the registry's operator.",
                )
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind.startswith("text/"):
            raise RegistryError(
                f"Could not {call}: the response is {kind}, not a manifest.",
                hint="Log in to the network, or check the address of the registry.",
            )
        with self._about(version):
            parsed = parse_manifest(response.data, kind)
        return FetchedManifest(digest, parsed.media_type, response.data, parsed)

    def image(self, reference: str, architecture: str) -> RemoteImage:
        """Return the image with a tag or digest for `linux/ARCHITECTURE` (`amd64`, `arm64`).

        Raises:
            ImageNotFoundError: There is no such image, or none for that platform.
            InvalidImageError: Its manifest or configuration is malformed.
        """
        version = self._version(reference)
        found = self.manifest(version)
        if found is None:
            raise self._not_found(version)
        parsed = found.parsed
        if isinstance(parsed, Index):
            chosen = parsed.choose(architecture)
            if chosen is None:
                raise self._not_for(architecture, version, parsed.platforms)
            found = self.manifest(chosen.digest)
            if found is None:
                raise self._not_found(chosen.digest)
            parsed = found.parsed
            if isinstance(parsed, Index):
                raise InvalidImageError(f"The image {self}, {version}, is an index of indexes.")
        data = self.blob(parsed.config.digest, most=_LARGEST_CONFIG)
        with self._about(version):
            config = parse_config(data)
        if (config.os, config.architecture) != ("linux", architecture):
            raise self._not_for(architecture, version, (config.platform,))
        if len(config.diff_ids) != len(parsed.layers):
            raise InvalidImageError(
                f"The image {self}, {version}, is malformed: it has {len(parsed.layers)} layers, and its "
                f"configuration names {len(config.diff_ids)}."
            )
        return RemoteImage(found.digest, parsed, config)

    def blob(self, digest: str, *, most: int = LARGEST_BLOB) -> bytes:
        """Return the content of a blob of up to *most* bytes, such as a configuration.

        Raises:
            ImageNotFoundError: There is no such blob.
            InvalidImageError: Its bytes do not have its digest.
        """
        call = self._call(f"read the blob {self._digest(digest)}")
        request = Outgoing(method="GET", url=self._client.url(call, f"blobs/{digest}"))
        data = self._client.send(call, request, most=most).data
        if digest_of(data) != digest:
            raise InvalidImageError(
                f"Could not {call}: its bytes have the digest {digest_of(data)}."
            )
        return data

    def open_blob(self, digest: str, size: int) -> BinaryIO:
        """Return a file that reads a blob of *size* bytes, once, from the beginning.

        A broken connection is continued where it broke. `read` raises `InvalidImageError` if there are more
        bytes, or at their end if they do not have the digest, and `RegistryUnavailableError` if they arrive
        slower than the least rate of the retry policy.

        Raises:
            ImageNotFoundError: There is no such blob; `read` raises it, too.
        """
        call = self._call(f"read the blob {self._digest(digest)}")
        return open_blob(self._client, call, digest, size)

    def has_blob(self, digest: str) -> bool:
        """Return whether the repository has a blob."""
        call = self._call(f"look for the blob {self._digest(digest)}")
        request = Outgoing(method="HEAD", url=self._client.url(call, f"blobs/{digest}"))
        return self._client.send(call, request, accept=(404,)).status != 404

    def mount(self, digest: str, source: Repository) -> bool:
        """Take a blob from another repository without a transfer; return whether the registry did that."""
        if source.reference.host != self.reference.host:
            return False
        call = self._call(f"mount the blob {self._digest(digest)}", "push")
        call = replace(call, other=source.reference.path)
        query = urlencode({"mount": digest, "from": call.other})
        try:
            return self._begin(call, f"?{query}", accept=(404, 405)).status == 201
        except (RegistryLoginError, RegistryPermissionError):
            return False  # Perhaps only the other repository is not readable: an upload shows.

    def check_push(self) -> None:
        """Check that images can be pushed, before the work of building one; nothing is stored.

        An upload is begun and cancelled: the registry says whether it accepts one.
        """
        self._begin(self._call("begin an upload", "push"))

    def _begin(self, call: Call, query: str = "", accept: Collection[int] = ()) -> Response:
        """Begin an upload, and cancel it."""
        request = Outgoing(method="POST", url=self._client.url(call, f"blobs/uploads/{query}"))
        response = self._client.send(call, request, accept=accept)
        if response.status == 202:
            with suppress(RegistryError):
                cancel(self._client, call, location_of(self._client, call, request.url, response))
        return response

    def upload(
        self,
        digest: str,
        size: int,
        open_content: Callable[[], BinaryIO],
        advance: Advance,
    ) -> None:
        """Upload a blob of *size* bytes, which each call of *open_content* reads from the beginning.

        *advance* counts the bytes that were sent; negative ones are sent again. It is called in another thread.
        The time limit restarts whenever more bytes were sent than in any earlier try.

        Raises:
            InvalidImageError: The registry stored something else.
        """
        call = self._call(f"upload the blob {self._digest(digest)}", "push")
        upload_blob(self._client, call, digest, size, open_content, advance)

    def put_manifest(self, tag_or_digest: str, data: bytes, media_type: str) -> str:
        """Store a manifest or an index, and return its digest. The blobs that it names are there already.

        Raises:
            InvalidImageError: Its bytes do not have the digest, or the registry stored something else.
        """
        version, digest = self._version(tag_or_digest), digest_of(data)
        call = self._call(f"write the manifest {version}", "push")
        if is_digest(version) and version != digest:
            raise InvalidImageError(f"Could not {call}: its bytes have the digest {digest}.")
        request = Outgoing(
            method="PUT",
            url=self._client.url(call, f"manifests/{version}"),
            headers={"Content-Type": media_type},
            body=data,
        )
        response = self._client.send(call, request)
        stored = response.headers.get("Docker-Content-Digest", digest)
        if stored != digest:
            raise InvalidImageError(
                f"Could not {call}: the registry stored it as {stored[:100]!r}, not as {digest}."
            )
        return digest

    def _call(self, doing: str, right: Right = "pull") -> Call:
        return Call(host=self.reference.host, path=self.reference.path, doing=doing, right=right)

    def _version(self, text: str) -> str:
        """Return *text*, a tag or digest; anything else would be another address.

        Raises:
            InvalidReferenceError: It is neither.
        """
        return text if is_digest(text) else self.reference.tagged(text).version

    def _digest(self, text: str) -> str:
        return self.reference.at(text).version

    def _manifest_request(self, call: Call, method: str, version: str) -> Outgoing:
        url = self._client.url(call, f"manifests/{version}")
        return Outgoing(method=method, url=url, headers={"Accept": _ACCEPT})

    @contextmanager
    def _about(self, what: str) -> Iterator[None]:
        """Let an error in the content name the image."""
        try:
            yield
        except InvalidImageError as error:
            raise InvalidImageError(f"{self}, {what}: {error.message}", hint=error.hint) from error

    def _not_found(self, version: str) -> ImageNotFoundError:
        joint = "@" if is_digest(version) else ":"
        return ImageNotFoundError(
            f"There is no image {self}{joint}{version}.",
            hint="Check the name and the tag, and that the image was pushed.",
        )

    def _not_for(
        self, architecture: str, version: str, platforms: tuple[str, ...]
    ) -> ImageNotFoundError:
        return ImageNotFoundError(
            f"The image {self}, {version}, is not for linux/{architecture}, but for: "
            f"{', '.join(platforms) or 'no platform'}.",
            hint=f"Build or choose an image for linux/{architecture}, or machines of another architecture.",
        )
