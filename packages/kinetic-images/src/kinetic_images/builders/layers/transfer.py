"""Transfer of layers into the repository of an image: downloads, conversions and uploads in parallel."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgspec

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.layers.layer_file import LayerBlob, LayerWriter
from kinetic_images.builders.layers.plan import PlannedLayer
from kinetic_images.builders.layers.worker import convert
from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.registry.oci import Descriptor
from kinetic_images.registry.repository import Repository
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.files.private import make_folder
from kinetic_payload.files.temporary import Temporary, collect_leftovers
from kinetic_payload.progress import size_text
from kinetic_payload.threads import check_wanted, parallel_map

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER: Final = 1 << 20
_POLL: Final = 0.1
"""Seconds between checks whether a layer is still wanted."""
_REQUESTS: Final = 8
"""Parallel requests that transfer little."""
_DOWNLOADS: Final = 8
_UPLOADS: Final = 4
"""Layers that are being uploaded while as many as there are processes are being written."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What it takes to bring layers into *repository*."""

    repository: Repository
    wheels: WheelFiles
    cache: Path
    """The folder of records, and of layers that are being written or uploaded."""
    processes: int
    reports: BuildReports

    def ensure_packages(
        self, planned: Sequence[PlannedLayer], sizes: Mapping[str, int], *, bytecode: bool
    ) -> list[LayerBlob]:
        """Bring the layers *planned* into the repository, and return them in order.

        A layer that the repository has is neither converted nor are its wheels downloaded.

        Raises:
            DownloadError: A wheel cannot be downloaded.
            BuildError: A wheel cannot be installed, or the disk is full.
            RegistryError: A layer cannot be uploaded.
        """
        # Also if nothing is missing: an earlier process may have been killed.
        make_folder(self.cache / "partial")
        collect_leftovers(str(self.cache / "partial"))

        def known_blob(layer: PlannedLayer) -> LayerBlob | None:
            try:
                blob = msgspec.convert(find_record(self._record(layer)), LayerBlob)
            except msgspec.ValidationError:  # Its loss costs a conversion, and nothing else.
                return None
            return blob if self.repository.has_blob(blob.digest) else None

        known = parallel_map(known_blob, planned, threads=_REQUESTS)
        missing = [layer for layer, blob in zip(planned, known, strict=True) if blob is None]
        made = self._make(missing, sizes, bytecode=bytecode) if missing else {}
        uploaded = sum(blob.size for blob in made.values())
        reused = len(planned) - len(missing)
        parts = [f"{reused} already in the registry"] if reused else []
        parts += [f"{len(missing)} added ({size_text(uploaded)})"] if missing else []
        self.reports.line(f"Layers of packages: {', '.join(parts)}.")
        return [blob or made[layer.key] for layer, blob in zip(planned, known, strict=True)]

    def ensure_files(self, files: Mapping[str, bytes]) -> LayerBlob:
        """Bring a layer of small *files* (path → content) into the repository, and return it."""
        stream = io.BytesIO()
        writer = LayerWriter(stream)
        for path, data in sorted(files.items()):
            writer.add(path, len(data), (data,))
        blob = writer.finish()
        self.ensure_data(blob.digest, stream.getvalue())
        return blob

    def ensure_data(self, digest: str, data: bytes) -> None:
        """Bring a small blob into the repository."""
        if not self.repository.has_blob(digest):
            self.repository.upload(digest, len(data), lambda: io.BytesIO(data), lambda _: None)

    def ensure_base(self, layers: Iterable[Descriptor], source: Repository) -> None:
        """Bring the *layers* of the base, which are in *source*, into the repository.

        Raises:
            RegistryError: One of them cannot be read or uploaded.
        """
        if source.reference == self.repository.reference:
            return
        wanted = list({layer.digest: layer for layer in layers}.values())

        def is_there(layer: Descriptor) -> bool:
            repository, digest = self.repository, layer.digest
            return repository.has_blob(digest) or repository.mount(digest, source)

        there = parallel_map(is_there, wanted, threads=_REQUESTS)
        missing = [layer for layer, found in zip(wanted, there, strict=True) if not found]
        if not missing:
            return
        total = sum(layer.size for layer in missing)
        with self.reports.progress("copying the base image", total) as advance:
            parallel_map(
                lambda layer: self.repository.upload(
                    layer.digest,
                    layer.size,
                    partial(source.open_blob, layer.digest, layer.size),
                    advance,
                ),
                missing,
                threads=_UPLOADS,
            )

    def _record(self, layer: PlannedLayer) -> Path:
        return self.cache / "records" / f"{layer.key}.json"

    def _make(
        self, missing: Sequence[PlannedLayer], sizes: Mapping[str, int], *, bytecode: bool
    ) -> dict[str, LayerBlob]:
        def size_of(layer: PlannedLayer) -> int:
            return sum(sizes.get(package.sha256, 0) for package in layer.packages)

        total, free = sum(map(size_of, missing)), threading.Semaphore(self.processes)

        def write(wheels: Sequence[Path], output: str) -> LayerBlob:
            while not free.acquire(timeout=_POLL):
                check_wanted()
            try:
                return convert(wheels, output, bytecode=bytecode)
            finally:
                free.release()

        def make(layer: PlannedLayer) -> LayerBlob:
            """Download the wheels of *layer*, write it, and upload it."""
            get = partial(self.wheels.get, advance=downloaded)
            wheels = parallel_map(get, layer.packages, threads=_DOWNLOADS)
            with Temporary(str(self.cache / "partial")) as file:
                blob = write(wheels, file.path)
                keep_record(self._record(layer), asdict(blob))
                if not self.repository.has_blob(blob.digest):
                    content = partial(open_shared, file.fd, blob.size)
                    self.repository.upload(blob.digest, blob.size, content, uploaded)
            return blob

        # The largest first, so that no process is left with a large one at the end.
        order = sorted(missing, key=size_of, reverse=True)
        with (
            self.reports.progress("downloading packages", total or None) as downloaded,
            self.reports.progress("uploading layers", None) as uploaded,
        ):
            made = parallel_map(make, order, threads=self.processes + _UPLOADS)
        return {layer.key: blob for layer, blob in zip(order, made, strict=True)}


def open_shared(fd: int, size: int) -> BinaryIO:
    """Return a stream of the first *size* bytes of the open file *fd*, which stays open.

    Closing any descriptor of a file drops its lock, so the file is not opened again.
    """
    return cast(BinaryIO, io.BufferedReader(_Shared(fd, size), _BUFFER))


class _Shared(io.RawIOBase):
    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._left = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)[: self._left]
        count = os.preadv(self._fd, [view], self._position)
        self._position += count
        self._left -= count
        return count
