"""What the server holds: buckets, objects, unfinished uploads."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kinetic_payload.testing.gcs.answers import ApiError, no_bucket, no_object
from kinetic_payload.testing.gcs.conditions import Conditions
from kinetic_payload.testing.gcs.contents import Content, Incoming

SOFT_DELETE_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class StoredObject:
    """One generation of an object. A change makes another one."""

    bucket: str
    name: str
    generation: int
    content: Content
    created: float
    updated: float
    metageneration: int = 1
    fields: dict[str, Any] = field(default_factory=dict)
    """What users may set: `contentType`, `metadata`, `customTime`, …"""
    components: int | None = None
    """Of a composite object: what it was made of."""

    @property
    def version(self) -> tuple[int, int]:
        """What preconditions are compared with."""
        return self.generation, self.metageneration

    @property
    def size(self) -> int:
        """In bytes."""
        return self.content.size


@dataclass
class Bucket:
    """A bucket and its objects."""

    name: str
    project: str
    generation: int
    created: float
    updated: float
    fields: dict[str, Any]
    """What users may set: `location`, `lifecycle`, `softDeletePolicy`, …"""
    metageneration: int = 1
    billing: bool = True
    policy: dict[str, frozenset[str]] | None = None
    """Who may do what; None: everybody everything."""
    objects: dict[str, StoredObject] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Of the objects, sorted by code point, which is the order of their UTF-8 bytes."""
    mutated: dict[str, float] = field(default_factory=dict)
    """When names were last written, where that is limited."""

    def put(self, stored: StoredObject) -> None:
        """Have *stored* under its name."""
        if stored.name not in self.objects:
            insort(self.names, stored.name)
        self.objects[stored.name] = stored

    def remove(self, name: str) -> None:
        """Have nothing under *name*."""
        del self.objects[name]
        del self.names[bisect_left(self.names, name)]


@dataclass
class Upload:
    """A resumable upload."""

    key: str
    bucket: str
    name: str
    conditions: Conditions
    fields: dict[str, Any]
    incoming: Incoming
    principal: str | None
    declared: int | None = None
    """The size that was announced when it began."""
    checks: dict[str, str] = field(default_factory=dict)
    turn: int = 0
    """The last request takes over; an older one, whose connection is dying, writes no more."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finished: StoredObject | None = None
    gone: int | None = None
    """Cancelled or expired, and with which status that is told."""


class State:
    """Everything, changed only in the server's event loop."""

    def __init__(
        self, folder: Path, *, write_interval: float = 0.0, skew: float = 0.0, md5: bool = True
    ) -> None:
        self._folder = folder
        self._md5 = md5
        self.skew = skew
        self.write_interval = write_interval
        """Seconds between two writes of one name; Google's is about one. 0: not limited."""
        self.buckets: dict[str, Bucket] = {}
        self.uploads: dict[str, Upload] = {}
        self.rewrites: dict[str, tuple[tuple[str, str, int], int]] = {}
        """Token → target and source's generation of an unfinished rewrite, and how many bytes it copied."""
        self._last_generation = 0

    def incoming(self, *, composite: bool = False) -> Incoming:
        """Return a content to be written."""
        return Incoming(self._folder, md5=self._md5 and not composite)

    def now(self) -> float:
        """Return the time by the server's own clock."""
        return time.time() + self.skew

    def next_generation(self) -> int:
        """Return a generation above all others, ever: microseconds, as Google's."""
        self._last_generation = max(self._last_generation + 1, int(self.now() * 1e6))
        return self._last_generation

    def bucket(self, name: str) -> Bucket:
        """Return a bucket that objects can be had from."""
        if name not in self.buckets:
            raise no_bucket()
        found = self.buckets[name]
        if not found.billing:
            raise ApiError(
                403,
                "accountDisabled",
                "The billing account for the owning project is disabled in state absent",
                location=("header", "Authorization"),
            )
        return found

    def object(self, bucket: str, name: str, generation: int | None = None) -> StoredObject:
        """Return the object; of this generation, if one is given."""
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
        conditions: Conditions,
        *,
        components: int | None = None,
    ) -> StoredObject:
        """Make *content* the object, if the conditions hold now."""
        home = self.bucket(bucket)
        found = home.objects.get(name)
        conditions.check(found.version if found else None)
        self.mutating(home, name)
        now = self.now()
        stored = StoredObject(
            bucket, name, self.next_generation(), content, now, now,
            fields=fields, components=components,
        )  # fmt: skip
        home.put(stored)
        return stored

    def change(self, stored: StoredObject, fields: dict[str, Any]) -> StoredObject:
        """Give an object other fields."""
        changed = replace(
            stored,
            fields=fields,
            metageneration=stored.metageneration + 1,
            updated=self.now(),
        )
        self.buckets[stored.bucket].put(changed)
        return changed

    def delete(self, stored: StoredObject) -> None:
        """Forget an object."""
        home = self.buckets[stored.bucket]
        self.mutating(home, stored.name)
        home.remove(stored.name)

    def mutating(self, home: Bucket, name: str) -> None:
        """Refuse a write that follows the last one of the same name too soon."""
        if not self.write_interval:
            return
        now = time.monotonic()
        if now - home.mutated.get(name, -self.write_interval) < self.write_interval:
            raise ApiError(
                429,
                "rateLimitExceeded",
                f"The object {home.name}/{name} exceeded the rate limit for object mutation "
                "operations (create, update, and delete). Please reduce your request rate. "
                "See https://cloud.google.com/storage/docs/gcs429.",
                domain="usageLimits",
            )
        home.mutated[name] = now
