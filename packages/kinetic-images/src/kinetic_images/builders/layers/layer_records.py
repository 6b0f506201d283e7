"""Layer records: which blob a layer became, by the layer's key."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.kept_records import mark_used
from kinetic_payload.files.private import make_folder, read_private, write_private


class LayerRecords:
    """The records in *folder*, one file for each key. Threads and processes can share them.

    A record that is lost or damaged costs a conversion, and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str) -> LayerBlob | None:
        """Return the blob of the layer *key*, if it is known."""
        try:
            blob = msgspec.json.decode(read_private(self._path(key)), type=LayerBlob)
        except (OSError, msgspec.DecodeError):
            return None
        mark_used(self._path(key))
        return blob

    def keep(self, key: str, blob: LayerBlob) -> None:
        """Record that the layer *key* is *blob*."""
        make_folder(self._folder)
        write_private(self._path(key), msgspec.json.encode(blob))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
