"""The objects of one bucket, by their names in the bucket, which may end in a slash."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self, TypeVar

import urllib3

from kinetic_payload.errors import StorePermissionError
from kinetic_payload.http.session import NoResponseError
from kinetic_payload.stores.gcs.checksums import decoded
from kinetic_payload.stores.gcs.connection import Connection, connection_to
from kinetic_payload.stores.gcs.errors import NotFoundError, PreconditionError
from kinetic_payload.stores.gcs.interception import intercepted
from kinetic_payload.stores.gcs.retry import RetryPolicy
from kinetic_payload.stores.gcs.service import Service
from kinetic_payload.stores.gcs.translation import (
    described_error,
    is_no_bucket,
    no_bucket,
    translated,
)
from kinetic_payload.stores.outages import OutageLimit, changed_copy
from kinetic_payload.threads import ahead

_T = TypeVar("_T")

_LISTED: Final = "name,size,generation,timeCreated,crc32c"
FIELDS: Final = f"{_LISTED},metadata"
NONCE: Final = "kinetic-write"
"""The key of the metadata by which a write recognises its object if the response was lost."""
_SPECIAL: Final = re.compile(r"[][*?{},!^\\]")


@dataclass(frozen=True)
class BucketObject:
    """The information that a bucket has about one of its objects."""

    name: str
    size: int
    generation: int
    created: float
    """When this generation was written, in seconds since the epoch. Age rules count from then."""
    crc32c: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> BucketObject:
        """Parse the API's resource.

        Raises:
            NoResponseError: *resource* does not describe an object.
        """
        try:
            if not isinstance(resource["name"], str) or int(resource["size"]) < 0:
                raise TypeError
            return cls(
                resource["name"],
                int(resource["size"]),
                int(resource["generation"]),
                datetime.fromisoformat(resource["timeCreated"]).timestamp(),
                decoded(resource.get("crc32c")),
                dict(resource.get("metadata") or {}),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NoResponseError(f"not an object: {str(resource)[:200]}") from error


class Bucket:
    """One bucket of one service."""

    def __init__(
        self,
        name: str,
        *,
        service: Service | None = None,
        retry: RetryPolicy | None = None,
        on_outage: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.name = name
        self.retry = retry or RetryPolicy()
        self.service = service or Service.from_environment()
        self._limit = OutageLimit(
            math.inf, report=on_outage, quiet=self.retry.quiet, clock=self.retry.clock
        )

    def __repr__(self) -> str:
        return f"Bucket({self.name!r})"

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same bucket for the calls of one operation, which share *limit*."""
        return changed_copy(self, _limit=limit)

    @property
    def connection(self) -> Connection:
        """The process's connection to the service."""
        return connection_to(self.service)

    def run(
        self, action: str, act: Callable[[int], _T], *, progress: Callable[[], int] = lambda: 0
    ) -> _T:
        """Return `act(n)` after *n* failed attempts; retry it, and translate its errors."""
        with translated(self.name, action):
            connection = self.connection
        with translated(self.name, action, connection.principal):
            return self.retry.run_attempts(
                act, self._limit, progress=progress, on_failure=self._explain
            )

    def _explain(self, error: Exception) -> None:
        seconds = min(self.retry.limit, self._limit.seconds)
        self._limit.explain(
            f"gs://{self.name} is unavailable: {described_error(error)}. Retrying for up to {seconds:.0f} s."
        )

    def send(self, method: str, url: str, **more: Any) -> urllib3.BaseHTTPResponse:
        """Make one request, with the policy's timeouts."""
        limit = self._limit
        # Keep half of the remaining time for another attempt. An upload gets all of it: over a slow network
        # its bytes may stay in the system's buffers for long.
        connect = limit.at_most(self.retry.connect, share=0.5)
        read = limit.at_most(self.retry.read, share=1.0 if callable(more.get("body")) else 0.5)
        if limit.seconds < math.inf:
            self.connection.reach(url, connect)
        return self.connection.send(method, url, timeout=(connect, read), **more)

    def stat(self, name: str) -> BucketObject | None:
        """Return the information on *name*, or None if it does not exist."""
        return self.run(f"look at {name!r}", lambda _: self.look(name))

    def look(self, name: str) -> BucketObject | None:
        """Do the same as `stat`, without retries."""
        try:
            url = self.connection.object_url(self.name, name, fields=FIELDS)
            return BucketObject.of(json_object(self.send("GET", url)))
        except NotFoundError as error:
            if is_no_bucket(error):
                raise
            return None

    def list(self, prefix: str = "", *, start: str = "") -> Iterator[BucketObject]:
        """Iterate over the objects whose name begins with *prefix* and is not below *start*, by name.

        Their metadata is not included.
        """
        fields = f"kind,nextPageToken,items({_LISTED})"
        begin, of = start or None, BucketObject.of
        for page in self._pages(of, prefix=prefix or None, startOffset=begin, fields=fields):
            yield from page["items"]

    def matching(
        self, prefix: str, glob: str, *, start: str = "", end: str = ""
    ) -> Iterator[BucketObject]:
        """Iterate over objects below *end* as `list` does, with their metadata.

        Google's service sends only those that match *prefix* followed by *glob*; other services may send all.
        """
        # `?` matches any character, so special characters need no escape.
        pattern = _SPECIAL.sub("?", prefix) + glob
        within = {"prefix": prefix or None, "startOffset": start or None, "endOffset": end or None}
        fields = f"kind,nextPageToken,items({FIELDS})"
        pages = self._pages(BucketObject.of, matchGlob=pattern, fields=fields, **within)
        for page in ahead(pages):  # While the caller verifies one page, the next one arrives.
            yield from page["items"]

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Iterate over the distinct names up to the first `/` after *prefix*, by name."""
        fields = "kind,nextPageToken,prefixes"
        for page in self._pages(prefix=prefix or None, delimiter="/", fields=fields):
            yield from page.get("prefixes", ())

    def entries(self, prefix: str = "") -> Sequence[str]:
        """Return a page of names of objects and of folders (ending in `/`) right below *prefix*."""
        fields = "kind,nextPageToken,prefixes,items/name"
        page = next(self._pages(prefix=prefix or None, delimiter="/", fields=fields))
        return sorted(
            [*page.get("prefixes", ()), *(item["name"] for item in page.get("items", ()))]
        )

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        """Delete *name*; return whether it existed."""

        def act(failed: int) -> bool:
            url = self.connection.object_url(self.name, name, ifGenerationMatch=if_generation)
            try:
                response = self.send("DELETE", url)
                # Google responds with 204. Emulators respond with other codes, and so does a captive portal.
                found = None if response.status == 204 else self.look(name)
                if found is not None and if_generation in (None, found.generation):
                    raise intercepted(response, "a deletion")
            except NotFoundError as error:
                if is_no_bucket(error):
                    raise
                # An earlier attempt, whose response was lost, most likely deleted it.
                if failed:
                    return True
                if if_generation is not None:
                    raise PreconditionError(412, "The object does not exist any more.") from error
                return False
            return True

        return self.run(f"delete {name!r}", act)

    def renew(self, name: str, *, if_generation: int) -> BucketObject | None:
        """Copy the object onto itself, inside the service; return None if it does not exist."""
        began = self.now()
        place = self.connection.object_url(self.name, name)
        query = f"ifSourceGenerationMatch={if_generation}&ifGenerationMatch={if_generation}"
        url = f"{place}/rewriteTo{place.partition('/storage/v1')[2]}?{query}"

        def act(failed: int) -> BucketObject | None:
            try:
                # In one bucket, no bytes move, so one request suffices for an object of any size.
                return BucketObject.of(json_object(self.send("POST", url)).get("resource") or {})
            except NotFoundError as error:
                if is_no_bucket(error):
                    raise
                return None
            except PreconditionError:
                found = self.look(name)
                # An earlier attempt, whose response was lost, wrote a generation of this time.
                if found is None or (failed and found.created >= began - 1):
                    return found
                raise

        return self.run(f"renew {name!r}", act)

    def now(self) -> float:
        """Return the time by the service's clock."""
        if self.connection.ahead is None:
            with suppress(StorePermissionError):  # A refusal has a date, too.
                next(self._pages(maxResults=1, fields="kind,items/name"))
        return time.time() + (self.connection.ahead or 0.0)

    def own_write(self, name: str, nonce: str) -> BucketObject | None:
        """Return the object if it was written with *nonce*; without retries."""
        found = self.look(name)
        return found if found is not None and found.metadata.get(NONCE) == nonce else None

    def _pages(
        self, item: Callable[[Any], object] = lambda item: item, **query: Any
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the pages of a list; *item* is called with each of their items."""
        token: str | None = None
        while True:

            def fetch(_: int, token: str | None = token) -> dict[str, Any]:
                url = self.connection.url(self.name, "/o", pageToken=token, **query)
                try:
                    response = self.send("GET", url)
                except NotFoundError as error:
                    raise no_bucket(self.name) from error
                page = json_object(response)
                # A list would never end if a page linked to itself.
                if not _is_list(page) or page.get("nextPageToken") == (token or 0):
                    raise intercepted(response, "a list of objects")
                page["items"] = [item(resource) for resource in page.get("items", ())]
                return page

            page = self.run("list objects", fetch)
            yield page
            token = page.get("nextPageToken")
            if not token:
                return


def json_object(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    """Return the JSON object in *response*."""
    try:
        found = json.loads(response.data)
    except (ValueError, RecursionError) as error:
        raise intercepted(response, "JSON") from error
    if not isinstance(found, dict):
        raise intercepted(response, "a JSON object")
    return found


def _is_list(page: dict[str, Any]) -> bool:
    """Return whether *page* is a page of a list of objects; an empty one has nothing but its kind."""
    items, folders = page.get("items", []), page.get("prefixes", [])
    return (
        page.get("kind") == "storage#objects"
        and isinstance(items, list)
        and isinstance(folders, list)
        and all(isinstance(item, dict) for item in items)
        and isinstance(page.get("nextPageToken") or "", str)
        and all(isinstance(folder, str) for folder in folders)
    )
