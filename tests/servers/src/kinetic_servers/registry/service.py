"""A registry as a service: who may call, the calls of manifests, blobs, uploads, and the errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs

from kinetic_images.registry.names import is_digest
from kinetic_images.registry.oci import DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST
from kinetic_servers.http.messages import (
    Answer,
    Call,
    FilePart,
    RefusedError,
    Service,
    json_answer,
)
from kinetic_servers.registry.access import Access
from kinetic_servers.registry.storage import Storage, StoredManifest

_NAME: Final = r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
_LARGEST_MANIFEST: Final = 4 << 20
_RANGE: Final = re.compile(r"bytes=([0-9]+)-([0-9]*)")
_TYPES: Final = (DOCKER_MANIFEST, DOCKER_INDEX, OCI_MANIFEST, OCI_INDEX)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


_RIGHTS: Final = {"pull": "pull", "push": "pull,push"}


@dataclass(frozen=True)
class Options:
    """What registries do in one way or another."""

    mounts: bool = True
    """Whether blobs can be taken from other repositories."""
    absolute: bool = True
    """Whether addresses have scheme and host."""
    redirect_blobs: bool = False
    """Whether readers of blobs are sent to `localhost`: the same server under another name, which must not get
    credentials."""


class RegistryService(Service):
    """Performs calls of callers that may make them."""

    headers = {"Docker-Distribution-Api-Version": "registry/2.0"}

    def __init__(self, storage: Storage, access: Access | None, options: Options) -> None:
        self._storage = storage
        self._access = access
        self._options = options
        self._routes: list[
            tuple[re.Pattern[str], Callable[[Call, str, str], Awaitable[Answer]]]
        ] = [
            (re.compile(rf"/v2/{_NAME}/manifests/(?P<rest>[^/]+)"), self._manifests),
            (re.compile(rf"/v2/{_NAME}/blobs/uploads/(?P<rest>[^/]*)"), self._uploads),
            (re.compile(rf"/v2/{_NAME}/blobs/(?P<rest>[^/]+)"), self._blobs),
            (re.compile(r"/_blobs/(?P<name>.+)/(?P<rest>[^/]+)"), self._content),
        ]

    async def perform(self, call: Call) -> Answer:
        access = self._access
        if access is not None and call.path == "/token":
            return await _token(call, access)
        if access is not None and not call.path.startswith("/_blobs/"):
            needed = self._needed(call)
            call.principal, wrong = access.check(call.headers.get("authorization", ""), needed)
            if wrong:
                raise _challenge(call, access, needed, wrong)
        if call.path in ("/v2", "/v2/"):
            return json_answer({})
        for pattern, perform in self._routes:
            if match := pattern.fullmatch(call.path):
                return await perform(call, match["name"], match["rest"])
        raise RefusedError(404, "NAME_INVALID", "no such path")

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        listed = [{"code": error.code, "message": error.message, "detail": None}]
        return json_answer({"errors": listed}, status=error.status, headers=error.headers)

    def _needed(self, call: Call) -> dict[str, str]:
        """Return which action in which repository a request needs."""
        for pattern, _ in self._routes[:-1]:
            if match := pattern.fullmatch(call.path):
                action = "pull" if call.method in ("GET", "HEAD") else "push"
                source = call.arg("from") if call.arg("mount") else ""
                return ({source: "pull"} if source else {}) | {match["name"]: action}
        return {}

    async def _manifests(self, call: Call, name: str, reference: str) -> Answer:
        if not is_digest(reference) and not _TAG.fullmatch(reference):
            raise RefusedError(400, "TAG_INVALID", "manifest tag did not match URI")
        if call.method == "PUT":
            return await self._put_manifest(call, name, reference)
        _allowed(call, "GET", "HEAD")
        if not self._storage.knows(name):
            raise RefusedError(404, "NAME_UNKNOWN", "repository name not known to registry")
        found = self._storage.manifest(name, reference)
        if found is None:
            raise RefusedError(404, "MANIFEST_UNKNOWN", "manifest unknown")
        listed = call.headers.get("accept", "").split(",")
        if found.media_type not in {each.partition(";")[0].strip().lower() for each in listed}:
            # As Debian's registry: it knows older formats, and finds none that is accepted.
            raise RefusedError(
                404, "MANIFEST_UNKNOWN", "the accept header does not support the manifest"
            )
        headers = {"Content-Type": found.media_type, "Docker-Content-Digest": found.digest}
        return Answer(200, found.data, headers)

    async def _put_manifest(self, call: Call, name: str, reference: str) -> Answer:
        data = await call.read(_LARGEST_MANIFEST)
        kind = call.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in _TYPES:
            raise RefusedError(400, "MANIFEST_INVALID", f"unknown media type {kind!r}")
        manifest = StoredManifest(kind, data)
        self._storage.put_manifest(name, reference, manifest)
        location = self._location(call, f"/v2/{name}/manifests/{manifest.digest}")
        return Answer(201, headers={"Location": location, "Docker-Content-Digest": manifest.digest})

    async def _blobs(self, call: Call, name: str, digest: str) -> Answer:
        if not is_digest(digest):
            raise RefusedError(400, "DIGEST_INVALID", "provided digest is malformed")
        _allowed(call, "GET", "HEAD")
        if self._storage.blob(name, digest) is None:
            raise RefusedError(404, "BLOB_UNKNOWN", "blob unknown to registry")
        if self._options.redirect_blobs and call.method == "GET":
            host = f"http://localhost:{call.base.rpartition(':')[2]}"
            target = f"{host}/_blobs/{name}/{digest}?signature=signed"
            return Answer(307, headers={"Location": target})
        return await self._content(call, name, digest)

    async def _content(self, call: Call, name: str, digest: str) -> Answer:
        """Return a blob's content: of the registry itself, or of the server of contents beside it."""
        path = self._storage.blob(name, digest)
        signed = call.arg("signature") == "signed" or call.path.startswith("/v2/")
        if path is None or not signed:
            raise RefusedError(403, "DENIED", "the address is not signed")
        size = path.stat().st_size
        headers = {"Content-Type": "application/octet-stream", "Docker-Content-Digest": digest}
        if not (match := _RANGE.fullmatch(call.headers.get("range", ""))):
            return Answer(200, FilePart(path, 0, size), {**headers, "Accept-Ranges": "bytes"})
        first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
        if first > last:
            raise RefusedError(416, "RANGE_INVALID", "invalid content range")
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Answer(206, FilePart(path, first, last - first + 1), headers)

    async def _uploads(self, call: Call, name: str, upload_id: str) -> Answer:
        if not upload_id:
            _allowed(call, "POST")
            return await self._begin(call, name)
        upload = self._storage.uploads.get(upload_id)
        if upload is None or upload.repository != name:
            raise RefusedError(404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
        if call.method == "DELETE":
            self._storage.cancel(upload)
            return Answer(204)
        _allowed(call, "PUT")
        digest = call.arg("digest")
        if not is_digest(digest):
            raise RefusedError(400, "DIGEST_INVALID", "digest missing")
        with upload.path.open("ab") as file:
            async for piece in call.chunks():
                file.write(piece)
        await asyncio.to_thread(self._storage.finish, upload, digest)
        return self._stored(call, name, digest)

    async def _begin(self, call: Call, name: str) -> Answer:
        digest, source = call.arg("mount"), call.arg("from")
        if digest and self._options.mounts and self._storage.mount(name, digest, source):
            return self._stored(call, name, digest)
        path = f"/v2/{name}/blobs/uploads/{self._storage.begin(name).id}?_state=begun"
        return Answer(202, headers={"Location": self._location(call, path)})

    def _stored(self, call: Call, name: str, digest: str) -> Answer:
        location = self._location(call, f"/v2/{name}/blobs/{digest}")
        return Answer(201, headers={"Location": location, "Docker-Content-Digest": digest})

    def _location(self, call: Call, path: str) -> str:
        return f"{call.base}{path}" if self._options.absolute else path


def _allowed(call: Call, *methods: str) -> None:
    if call.method not in methods:
        raise RefusedError(405, "UNSUPPORTED", f"{call.method} is not supported here")


def _challenge(call: Call, access: Access, needed: Mapping[str, str], wrong: str) -> RefusedError:
    if access.basic and wrong == "insufficient":
        return RefusedError(403, "DENIED", "requested access to the resource is denied")
    value = 'Basic realm="registry"'
    if not access.basic:
        value = f'Bearer realm="{call.base}/token",service="registry.test"'
        if needed:
            scopes = (f"repository:{name}:{_RIGHTS[what]}" for name, what in needed.items())
            value += f',scope="{" ".join(scopes)}"'
        if wrong != "missing":
            value += f',error="{wrong}_{"scope" if wrong == "insufficient" else "token"}"'
    headers = {"WWW-Authenticate": value}
    return RefusedError(401, "UNAUTHORIZED", "authentication required", headers=headers)


async def _token(call: Call, access: Access) -> Answer:
    user: str | None
    if call.method == "POST":
        form = parse_qs((await call.read()).decode())
        user = access.refresh.get(form.get("refresh_token", [""])[0])
        scopes = form.get("scope", [])
    else:
        user = access.log_in(call.headers.get("authorization", ""))
        scopes = call.query.get("scope", [])
    if user is None:
        raise RefusedError(401, "UNAUTHORIZED", "incorrect username or password")
    token = access.issue(user, scopes)
    name = "access_token" if call.method == "POST" else "token"
    issued = datetime.now(UTC).isoformat()
    return json_answer({name: token, "expires_in": access.seconds, "issued_at": issued})
