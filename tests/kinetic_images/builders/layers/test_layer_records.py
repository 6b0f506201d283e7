from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_images.builders.layers.layer_file import LayerBlob
from kinetic_images.builders.layers.layer_records import LayerRecords

BLOB = LayerBlob(digest="sha256:a", diff_id="sha256:b", size=3)


def test_a_layer_is_found_by_its_key(tmp_path: Path) -> None:
    LayerRecords(tmp_path / "new").keep("key", BLOB)

    assert LayerRecords(tmp_path / "new").find("key") == BLOB
    assert LayerRecords(tmp_path / "new").find("other") is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"digest":1}', b"\xff"])
def test_a_damaged_record_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    records = LayerRecords(tmp_path)
    records.keep("key", BLOB)
    (tmp_path / "key.json").write_bytes(content)

    assert records.find("key") is None


def test_a_record_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    records = LayerRecords(tmp_path)
    records.keep("key", BLOB)
    (tmp_path / "key.json").chmod(0o666)

    assert records.find("key") is None
