"""`MemoryStore`: a store inside this process, for tests."""

# The protocol `Store` describes the methods.
# ruff: noqa: D102

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from kinetic_payload.errors import ObjectNotFoundError, PreconditionFailedError
from kinetic_payload.layout import LISTED
from kinetic_payload.limits import refuse_larger
from kinetic_payload.stores.names import check_name
from kinetic_payload.stores.store import ABSENT, Location, ObjectInfo

if TYPE_CHECKING:
    from kinetic_payload.digests import FileCheck
    from kinetic_payload.progress import Advance
    from kinetic_payload.stores.outages import OutageLimit


class MemoryStore:
    """A store inside this process, for tests."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._lock = threading.Lock()
        self._last = 0

    @property
    def location(self) -> Location:
        """A location that no other process can open."""
        return Location("memory", f"{id(self):x}")

    def names(self) -> list[str]:
        """Return the names of all objects, sorted."""
        with self._lock:
            return sorted(self._objects)

    @property
    def concurrency(self) -> int:
        return 1

    def limited(self, limit: OutageLimit) -> Self:  # noqa: ARG002
        return self

    def now(self) -> float:
        return time.time()

    def stat(self, name: str) -> ObjectInfo | None:
        found = self._objects.get(check_name(name))
        return found[1] if found else None

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        return self._get(name)[start : None if end is None else max(start, end)]

    @contextmanager
    def reader(self, name: str) -> Iterator[BinaryIO]:
        yield io.BytesIO(self._get(name))

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        with self._lock:
            self._expect(name, if_generation)
            self._last += 1
            info = ObjectInfo(name, len(data), self._last, time.time())
            self._objects[name] = (bytes(data), info)
            return info

    @contextmanager
    def writer(
        self,
        name: str,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
    ) -> Iterator[BinaryIO]:
        self._expect(name, if_generation)
        stream = io.BytesIO()
        yield stream
        written = self.write(name, stream.getvalue(), if_generation=if_generation)
        if progress is not None:
            progress(written.size)

    def download(
        self, name: str, path: Path, *, progress: Advance | None = None, most: int | None = None
    ) -> None:
        data = self._get(name)
        refuse_larger(name, len(data), most)
        path.write_bytes(data)
        if progress is not None:
            progress(len(data))

    def upload(
        self,
        name: str,
        path: Path,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
        check: FileCheck | None = None,
    ) -> ObjectInfo:
        data = path.read_bytes()
        if check is not None:
            check.update(data)
            check.finish()
        info = self.write(name, data, if_generation=if_generation)
        if progress is not None:
            progress(info.size)
        return info

    def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
        with self._lock:
            if name not in self._objects:
                return None
            self._expect(name, if_generation)
            self._last += 1
            data, info = self._objects[name]
            self._objects[name] = (
                data,
                ObjectInfo(name, info.size, self._last, time.time()),
            )
            return self._objects[name][1]

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._lock:
            found = sorted(self._objects.items())
        for name, (_, info) in found:
            if name.startswith(prefix) and name > start_after:
                yield info

    def folders(self, prefix: str = "") -> Iterator[str]:
        names = (name for name in self.names() if name.startswith(prefix))
        firsts = {
            prefix + name[len(prefix) :].partition("/")[0] + "/"
            for name in names
            if "/" in name[len(prefix) :]
        }
        yield from sorted(firsts)

    def records(self, prefix: str = "") -> Iterator[tuple[ObjectInfo, bytes | None]]:
        for info in self.list(prefix):
            if info.name[len(prefix) :].partition("/")[2] in LISTED:
                yield info, None

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        with self._lock:
            self._expect(name, if_generation)
            return self._objects.pop(name, None) is not None

    def _get(self, name: str) -> bytes:
        try:
            return self._objects[check_name(name)][0]
        except KeyError:
            raise ObjectNotFoundError(f"No object {name!r} in this memory store.") from None

    def _expect(self, name: str, generation: int | None) -> None:
        found = self.stat(name)
        if generation is not None and generation != (found.generation if found else ABSENT):
            raise PreconditionFailedError(f"{name!r} is not of generation {generation}.")
