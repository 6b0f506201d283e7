"""What a registry for tests stores: blobs as files, manifests and tags in memory."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetic_servers.http.messages import RefusedError


@dataclass(frozen=True)
class StoredManifest:
    """A manifest or index, as it was pushed."""

    media_type: str
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """Its digest: `sha256:…`."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"


@dataclass(frozen=True)
class Upload:
    """An upload that has begun."""

    id: str
    repository: str
    path: Path


@dataclass
class _Repository:
    tags: dict[str, str] = field(default_factory=dict)
    manifests: dict[str, StoredManifest] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)


class Storage:
    """The repositories of a registry. Can be used from any thread."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "blobs"
        self._incoming = folder / "uploads"
        for each in (self._blobs, self._incoming):
            each.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._repositories: dict[str, _Repository] = {}
        self.uploads: dict[str, Upload] = {}

    def knows(self, repository: str) -> bool:
        """Return whether anything was pushed to *repository*."""
        return repository in self._repositories

    def blob(self, repository: str, digest: str) -> Path | None:
        """Return the file of a blob; None if the repository does not have it."""
        with self._lock:
            known = digest in self._of(repository).blobs
        return self._path(digest) if known else None

    def begin(self, repository: str) -> Upload:
        name = secrets.token_hex(16)
        upload = Upload(name, repository, self._incoming / name)
        upload.path.touch()
        with self._lock:
            self.uploads[name] = upload
        return upload

    def finish(self, upload: Upload, digest: str) -> None:
        """Make an upload a blob.

        Raises:
            RefusedError: Its bytes have another digest.
        """
        with upload.path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != f"sha256:{found}":
            self.cancel(upload)
            raise RefusedError(
                400, "DIGEST_INVALID", "provided digest did not match uploaded content"
            )
        with self._lock:
            self.uploads.pop(upload.id, None)
            upload.path.replace(self._path(digest))
            self._create(upload.repository).blobs.add(digest)

    def cancel(self, upload: Upload) -> None:
        with self._lock:
            self.uploads.pop(upload.id, None)
        upload.path.unlink(missing_ok=True)

    def add_blob(self, repository: str, data: bytes) -> str:
        """Store a blob without a request; return its digest."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        with self._lock:
            self._path(digest).write_bytes(data)
            self._create(repository).blobs.add(digest)
        return digest

    def mount(self, repository: str, digest: str, source: str) -> bool:
        """Take a blob from another repository; return whether that has it."""
        with self._lock:
            if digest not in self._of(source).blobs:
                return False
            self._create(repository).blobs.add(digest)
        return True

    def manifest(self, repository: str, reference: str) -> StoredManifest | None:
        """Return the manifest with a tag or digest."""
        with self._lock:
            found = self._of(repository)
            return found.manifests.get(found.tags.get(reference, reference))

    def put_manifest(self, repository: str, reference: str, manifest: StoredManifest) -> None:
        """Store a manifest, and set the tag if *reference* is none of a digest.

        Raises:
            RefusedError: It is malformed, or names something that the repository does not have.
        """
        by_digest = ":" in reference
        if by_digest and reference != manifest.digest:
            raise RefusedError(
                400, "DIGEST_INVALID", "provided digest did not match uploaded content"
            )
        with self._lock:
            self._check(self._of(repository), manifest)
            found = self._create(repository)
            found.manifests[manifest.digest] = manifest
            if not by_digest:
                found.tags[reference] = manifest.digest

    def remove_manifest(self, repository: str, reference: str) -> None:
        """Remove the tag *reference*."""
        with self._lock:
            del self._of(repository).tags[reference]

    def tags(self, repository: str) -> list[str]:
        """Return the tags of a repository, in order."""
        with self._lock:
            return sorted(self._of(repository).tags)

    def _check(self, repository: _Repository, manifest: StoredManifest) -> None:
        try:
            found: Any = json.loads(manifest.data)
            named = found.get("mediaType", manifest.media_type)
            if named != manifest.media_type or found["schemaVersion"] != 2:
                raise ValueError(f"mediaType is {named!r}")
            blobs = _digests([*found.get("layers", ()), *filter(None, [found.get("config")])])
            manifests = _digests(found.get("manifests", ()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RefusedError(400, "MANIFEST_INVALID", f"manifest invalid: {error}") from error
        missing = [each for each in blobs if each not in repository.blobs]
        missing += [each for each in manifests if each not in repository.manifests]
        if missing:
            raise RefusedError(
                400, "MANIFEST_BLOB_UNKNOWN", f"blob unknown to registry: {missing[0]}"
            )

    def _path(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    def _of(self, repository: str) -> _Repository:
        return self._repositories.get(repository) or _Repository()

    def _create(self, repository: str) -> _Repository:
        return self._repositories.setdefault(repository, _Repository())


def _digests(descriptors: Iterable[Any]) -> list[str]:
    return [str(each["digest"]) for each in descriptors]
