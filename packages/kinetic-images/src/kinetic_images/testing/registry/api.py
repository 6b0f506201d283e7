"""The calls of a registry for tests: manifests, blobs, uploads, tags."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from kinetic_images.registry.names import is_digest
from kinetic_images.registry.oci import DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST
from kinetic_images.testing.registry.answers import Answer, Asked, json_answer
from kinetic_images.testing.registry.storage import Storage, StorageError, StoredManifest, Upload

_NAME: Final = r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
_LARGEST_MANIFEST: Final = 4 << 20
_RANGE: Final = re.compile(r"bytes=([0-9]+)-([0-9]*)")
_TYPES: Final = (DOCKER_MANIFEST, DOCKER_INDEX, OCI_MANIFEST, OCI_INDEX)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Api:
    """Performs calls. The options are those of `RegistryServer`."""

    def __init__(
        self,
        storage: Storage,
        *,
        mounts: bool,
        chunked: bool,
        digest_header: bool,
        blob_host: str,
        absolute: bool,
    ) -> None:
        self._storage = storage
        self._mounts = mounts
        self._chunked = chunked
        self._digest_header = digest_header
        self.blob_host = blob_host
        self._absolute = absolute
        self._routes: list[tuple[re.Pattern[str], Callable[[Asked, str, str], Answer]]] = [
            (re.compile(rf"/v2/{_NAME}/manifests/(?P<rest>[^/]+)"), self._manifests),
            (re.compile(rf"/v2/{_NAME}/blobs/uploads/(?P<rest>[^/]*)"), self._uploads),
            (re.compile(rf"/v2/{_NAME}/blobs/(?P<rest>[^/]+)"), self._blobs),
            (re.compile(rf"/v2/{_NAME}/tags/(?P<rest>list)"), self._tags),
            (re.compile(r"/_blobs/(?P<name>.+)/(?P<rest>[^/]+)"), self._content),
        ]

    def needs(self, asked: Asked) -> dict[str, str]:
        """Return which action in which repository a request needs."""
        for pattern, _ in self._routes[:-1]:
            if match := pattern.fullmatch(asked.path):
                action = "pull" if asked.method in ("GET", "HEAD") else "push"
                source = asked.one("from") if asked.one("mount") else ""
                return ({source: "pull"} if source else {}) | {match["name"]: action}
        return {}

    def answer(self, asked: Asked) -> Answer:
        """Perform a call.

        Raises:
            StorageError: It is refused.
        """
        if asked.path in ("/v2", "/v2/"):
            return json_answer({})
        for pattern, call in self._routes:
            if match := pattern.fullmatch(asked.path):
                return call(asked, match["name"], match["rest"])
        raise StorageError(404, "NAME_INVALID", "no such path")

    def _manifests(self, asked: Asked, name: str, reference: str) -> Answer:
        if not is_digest(reference) and not _TAG.fullmatch(reference):
            raise StorageError(400, "TAG_INVALID", "manifest tag did not match URI")
        if asked.method == "PUT":
            return self._put_manifest(asked, name, reference)
        if asked.method == "DELETE":
            if not self._storage.remove_manifest(name, reference):
                raise StorageError(404, "MANIFEST_UNKNOWN", "manifest unknown")
            return Answer(202)
        _allowed(asked, "GET", "HEAD")
        if not self._storage.knows(name):
            raise StorageError(404, "NAME_UNKNOWN", "repository name not known to registry")
        found = self._storage.manifest(name, reference)
        if found is None:
            raise StorageError(404, "MANIFEST_UNKNOWN", "manifest unknown")
        if found.media_type not in asked.accept:
            # As Debian's registry: it knows older formats, and finds none that is accepted.
            raise StorageError(
                404, "MANIFEST_UNKNOWN", "the accept header does not support the manifest"
            )
        headers = {"Content-Type": found.media_type, **self._digest(found.digest)}
        return Answer(200, headers, found.data)

    def _put_manifest(self, asked: Asked, name: str, reference: str) -> Answer:
        data = asked.body.read(_LARGEST_MANIFEST + 1)
        if len(data) > _LARGEST_MANIFEST:
            raise StorageError(413, "MANIFEST_INVALID", "the manifest is too large")
        kind = asked.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in _TYPES:
            raise StorageError(400, "MANIFEST_INVALID", f"unknown media type {kind!r}")
        manifest = StoredManifest(kind, data)
        self._storage.put_manifest(name, reference, manifest)
        location = self._location(asked, f"/v2/{name}/manifests/{manifest.digest}")
        return Answer(201, {"Location": location, **self._digest(manifest.digest)})

    def _blobs(self, asked: Asked, name: str, digest: str) -> Answer:
        if not is_digest(digest):
            raise StorageError(400, "DIGEST_INVALID", "provided digest is malformed")
        if asked.method == "DELETE":
            if not self._storage.remove_blob(name, digest):
                raise StorageError(404, "BLOB_UNKNOWN", "blob unknown to registry")
            return Answer(202)
        _allowed(asked, "GET", "HEAD")
        if self._storage.blob(name, digest) is None:
            raise StorageError(404, "BLOB_UNKNOWN", "blob unknown to registry")
        if self.blob_host and asked.method == "GET":
            target = f"{self.blob_host}/_blobs/{name}/{digest}?signature=signed"
            return Answer(307, {"Location": target})
        return self._content(asked, name, digest)

    def _content(self, asked: Asked, name: str, digest: str) -> Answer:
        """Return a blob's content: of the registry itself, or of the server of contents beside it."""
        path = self._storage.blob(name, digest)
        signed = asked.one("signature") == "signed" or asked.path.startswith("/v2/")
        if path is None or not signed:
            raise StorageError(403, "DENIED", "the address is not signed")
        size = path.stat().st_size
        headers = {"Content-Type": "application/octet-stream", **self._digest(digest)}
        if not (match := _RANGE.fullmatch(asked.headers.get("range", ""))):
            return Answer(200, {**headers, "Accept-Ranges": "bytes"}, path)
        first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
        if first > last:
            raise StorageError(416, "RANGE_INVALID", "invalid content range")
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Answer(206, headers, path, first, last - first + 1)

    def _uploads(self, asked: Asked, name: str, upload_id: str) -> Answer:
        if not upload_id:
            _allowed(asked, "POST")
            return self._begin(asked, name)
        upload = self._storage.uploads.get(upload_id)
        if upload is None or upload.repository != name:
            raise StorageError(404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
        if asked.one("_state") != upload.state:
            raise StorageError(400, "BLOB_UPLOAD_INVALID", "the address is not the latest one")
        if asked.method == "PATCH":
            if not self._chunked:
                raise StorageError(405, "UNSUPPORTED", "uploads in chunks are not supported")
            self._append(asked, upload)
            return self._progress(asked, upload, 202)
        if asked.method == "PUT":
            digest = asked.one("digest")
            if not is_digest(digest):
                raise StorageError(400, "DIGEST_INVALID", "digest missing")
            self._append(asked, upload)
            return self._finish(asked, upload, digest)
        if asked.method == "DELETE":
            self._storage.cancel(upload)
            return Answer(204)
        _allowed(asked, "GET")
        return self._progress(asked, upload, 204, renew=False)

    def _begin(self, asked: Asked, name: str) -> Answer:
        digest, source = asked.one("mount"), asked.one("from")
        if digest and self._mounts and self._storage.mount(name, digest, source):
            return self._stored(asked, name, digest)
        upload = self._storage.begin(name)
        if digest := asked.one("digest"):
            self._append(asked, upload)
            return self._finish(asked, upload, digest)
        return self._progress(asked, upload, 202)

    def _append(self, asked: Asked, upload: Upload) -> None:
        given = asked.headers.get("content-range", "")
        if given and given.partition("-")[0] != str(upload.size):
            raise StorageError(416, "RANGE_INVALID", "invalid content range")
        with upload.path.open("ab") as file:
            try:
                while piece := asked.body.read(1 << 16):
                    file.write(piece)
            finally:
                upload.size = file.tell()

    def _progress(self, asked: Asked, upload: Upload, status: int, *, renew: bool = True) -> Answer:
        if renew:
            upload.renew()
        path = f"/v2/{upload.repository}/blobs/uploads/{upload.id}?_state={quote(upload.state)}"
        headers = {
            "Location": self._location(asked, path),
            "Docker-Upload-UUID": upload.id,
            "Range": f"0-{max(upload.size - 1, 0)}",
        }
        return Answer(status, headers)

    def _finish(self, asked: Asked, upload: Upload, digest: str) -> Answer:
        self._storage.finish(upload, digest)
        return self._stored(asked, upload.repository, digest)

    def _stored(self, asked: Asked, name: str, digest: str) -> Answer:
        location = self._location(asked, f"/v2/{name}/blobs/{digest}")
        return Answer(201, {"Location": location, **self._digest(digest)})

    def _tags(self, asked: Asked, name: str, _: str) -> Answer:
        _allowed(asked, "GET")
        if not self._storage.knows(name):
            raise StorageError(404, "NAME_UNKNOWN", "repository name not known to registry")
        tags = [tag for tag in self._storage.tags(name) if tag > asked.one("last")]
        most = int(asked.one("n") or len(tags) or 1)
        headers = {}
        if len(tags) > most:
            following = f"/v2/{name}/tags/list?n={most}&last={quote(tags[most - 1])}"
            headers = {"Link": f'<{following}>; rel="next"'}
        return json_answer({"name": name, "tags": tags[:most]}, headers=headers)

    def _location(self, asked: Asked, path: str) -> str:
        if not self._absolute:
            return path
        return f"{asked.base}{path}"

    def _digest(self, digest: str) -> dict[str, str]:
        return {"Docker-Content-Digest": digest} if self._digest_header else {}


def _allowed(asked: Asked, *methods: str) -> None:
    if asked.method not in methods:
        raise StorageError(405, "UNSUPPORTED", f"{asked.method} is not supported here")
