from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_images.builders.layers.layer_file import LayerWriter

files = st.dictionaries(
    st.text(
        st.characters(exclude_characters="/\0", exclude_categories=("Cs",)),
        min_size=1,
        max_size=120,
    ).filter(lambda name: name not in (".", "..")),
    st.binary(max_size=2000),
    max_size=3,
)


@given(files)
def test_any_files_are_read_back_and_both_digests_are_right(files: dict[str, bytes]) -> None:
    stream = io.BytesIO()

    writer = LayerWriter(stream)
    for name, content in files.items():
        writer.add(name, len(content), [content])
    blob = writer.finish()

    data = stream.getvalue()
    plain = gzip.decompress(data)
    assert blob.size == len(data)
    assert blob.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert blob.diff_id == f"sha256:{hashlib.sha256(plain).hexdigest()}"
    assert len(plain) % 10240 == 0
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        found = {each.name: (archive.extractfile(each) or io.BytesIO()).read() for each in archive}
    assert found == files


@pytest.mark.parametrize("piece", [1000, 300_000, 5_000_000])
def test_a_layer_does_not_depend_on_the_pieces_in_which_content_arrives(piece: int) -> None:
    data = random.Random(1).randbytes(1_000_000) + bytes(1_500_000)

    def written(size: int) -> bytes:
        stream = io.BytesIO()
        writer = LayerWriter(stream)
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        writer.add("file", len(data), pieces)
        writer.finish()
        return stream.getvalue()

    assert written(piece) == written(len(data))


@pytest.mark.parametrize("content", [[b"12"], [b"12", b"34"]])
def test_content_of_another_size_is_an_error(content: list[bytes]) -> None:
    writer = LayerWriter(io.BytesIO())

    with pytest.raises(ValueError, match="expected 3 bytes"):
        writer.add("file", 3, content)
