"""The state of the server: buckets, objects, unfinished uploads."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.iam.v1 import policy_pb2

from kinetic_servers.gcs.contents import Content, Incoming
from kinetic_servers.gcs.errors import no_bucket, no_object, precondition_failed
from kinetic_servers.http.messages import RefusedError


@dataclass(frozen=True)
class StoredObject:
    """One state of an object. A change creates another one."""

    bucket: str
    name: str
    generation: int
    content: Content
    created: float
    updated: float
    metageneration: int = 1
    fields: dict[str, Any] = field(default_factory=dict)
    """The fields that users may set: `contentType`, `metadata`."""

    @property
    def size(self) -> int:
        return self.content.size


@dataclass
class Bucket:
    """A bucket and its objects."""

    name: str
    project: str
    generation: int
    created: float
    number: int = 0
    """Of the project."""
    billing: bool = True
    location: str = "US"
    regions: tuple[str, ...] = ()
    """Of a dual-region."""
    policy: dict[str, frozenset[str]] | None = None
    """Principal → permissions; None: everyone has all."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The fields that users may set: `lifecycle`, `labels`."""
    metageneration: int = 1
    updated: float = 0.0
    iam: policy_pb2.Policy = field(default_factory=policy_pb2.Policy)
    """What `setIamPolicy` set. It decides nothing here: see `policy`."""
    objects: dict[str, StoredObject] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """The objects' names, sorted by code point, which is the order of their UTF-8 bytes."""

    def put(self, stored: StoredObject) -> None:
        if stored.name not in self.objects:
            insort(self.names, stored.name)
        self.objects[stored.name] = stored

    def remove(self, name: str) -> None:
        del self.objects[name]
        del self.names[bisect_left(self.names, name)]


@dataclass
class Upload:
    """A resumable upload."""

    bucket: str
    name: str
    if_generation: int | None
    fields: dict[str, Any]
    incoming: Incoming
    principal: str | None
    declared: int | None = None
    """The size that was announced when it began."""
    checks: dict[str, str] = field(default_factory=dict)
    turn: int = 0
    """Only the last request may write; the connection of an older one is broken."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finished: StoredObject | None = None
    gone: int | None = None
    """The status of further requests after it has expired."""


def check_generation(expected: int | None, found: StoredObject | None) -> None:
    """Refuse if *found* is not of the expected generation; 0: it must not exist."""
    if expected is not None and expected != (found.generation if found else 0):
        raise precondition_failed()


class State:
    """All buckets and uploads, changed only in the server's event loop."""

    def __init__(self, folder: Path, *, md5: bool = True) -> None:
        self._folder = folder
        self._md5 = md5
        self.buckets: dict[str, Bucket] = {}
        self.uploads: dict[str, Upload] = {}
        self.largest_page = 1000
        self.check_policy: Callable[[policy_pb2.Policy], None] = lambda _: None
        """Refuse a policy whose roles or members do not exist."""
        self.number_of: Callable[[str], int] = lambda project: 10**11 + sum(map(ord, project))
        """Return a project's number, or refuse a project that cannot have buckets."""
        self.denied: Container[str] = ()
        """Permissions that nobody has."""
        self._last_generation = 0

    def incoming(self) -> Incoming:
        return Incoming(self._folder, md5=self._md5)

    def next_generation(self) -> int:
        """Return a generation above all earlier ones: microseconds, as Google's."""
        self._last_generation = max(self._last_generation + 1, int(time.time() * 1e6))
        return self._last_generation

    def bucket(self, name: str) -> Bucket:
        if name not in self.buckets:
            raise no_bucket()
        found = self.buckets[name]
        if not found.billing:
            raise RefusedError(
                403,
                "accountDisabled",
                "The billing account for the owning project is disabled in state absent",
                location=("header", "Authorization"),
            )
        return found

    def object(self, bucket: str, name: str, generation: int | None = None) -> StoredObject:
        """Return the object, which must be of *generation* if that is given."""
        found = self.bucket(bucket).objects.get(name)
        if found is None or generation not in (None, found.generation):
            raise no_object(bucket, name)
        return found

    def store(
        self,
        bucket: str,
        name: str,
        content: Content,
        fields: dict[str, Any],
        if_generation: int | None,
    ) -> StoredObject:
        """Write an object, if the current one is of the expected generation."""
        home = self.bucket(bucket)
        check_generation(if_generation, home.objects.get(name))
        now = time.time()
        generation = self.next_generation()
        stored = StoredObject(bucket, name, generation, content, now, now, fields=fields)
        home.put(stored)
        return stored

    def change(self, stored: StoredObject, fields: dict[str, Any]) -> StoredObject:
        changed = replace(
            stored,
            fields=fields,
            metageneration=stored.metageneration + 1,
            updated=time.time(),
        )
        self.buckets[stored.bucket].put(changed)
        return changed
