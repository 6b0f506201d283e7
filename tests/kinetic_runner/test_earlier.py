"""What is taken over of an earlier attempt; with whole attempts in `test_pipeline`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kinetic_payload.references import DataRef
from kinetic_payload.snapshot import tree_of
from kinetic_runner.earlier import Earlier


@pytest.fixture
def left(tmp_path: Path) -> Earlier:
    (tmp_path / "payload").write_bytes(b"call")
    (tmp_path / "data" / "d0").mkdir(parents=True)
    (tmp_path / "data" / "d0" / "one.csv").write_text("1,2")
    earlier = Earlier(tmp_path)
    earlier.put_aside()
    return earlier


@pytest.mark.parametrize(("content", "taken"), [(b"call", True), (b"other", False)])
def test_a_file_is_taken_over_if_it_has_its_digest(
    left: Earlier, tmp_path: Path, content: bytes, taken: bool
) -> None:
    path = tmp_path / "payload"

    assert left.take_file(path, digest=hashlib.sha256(content).hexdigest()) is taken
    assert path.exists() is taken
    assert left.take_file(tmp_path / "never there") is False


def test_a_file_of_data_is_taken_over_from_where_it_was_mounted(
    left: Earlier, tmp_path: Path
) -> None:
    mounted = tmp_path / "data" / "d0" / "one.csv"
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.csv").write_text("1,2")
    ref = DataRef(
        key="d0", kind="local", source="one.csv", is_dir=False, name="one.csv",
        digest=tree_of(source).digest,
    )  # fmt: skip

    assert left.take_data(ref, tmp_path / "one.csv", was_at=mounted)
    assert (tmp_path / "one.csv").read_text() == "1,2"
    assert not left.take_data(ref, tmp_path / "again", was_at=mounted)
    assert not left.take_data(ref, tmp_path / "again", was_at=Path("/elsewhere/one.csv"))


def test_what_came_before_the_earlier_attempt_goes_when_that_is_put_aside(
    left: Earlier, tmp_path: Path
) -> None:
    (tmp_path / "new").touch()
    left.put_aside()

    assert not left.take_file(tmp_path / "payload")
    assert left.take_file(tmp_path / "new")
    left.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
