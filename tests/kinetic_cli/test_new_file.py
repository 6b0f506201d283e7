"""`NewFile`: all of it, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kinetic_cli.new_file import NewFile


def test_a_file_appears_at_the_end_with_what_was_written_last(tmp_path: Path) -> None:
    path = tmp_path / "value"
    with NewFile(path) as file:
        file.begin().write(b"first and long")
        file.begin().write(b"second")
        assert not path.exists()
        file.finish()

    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["value"]


def test_nothing_appears_of_what_was_not_finished_or_has_no_place(tmp_path: Path) -> None:
    path = tmp_path / "value"
    with NewFile(path) as file:
        file.begin().write(b"some")
    assert os.listdir(tmp_path) == []

    with NewFile(path) as file:
        file.begin().write(b"ours")
        path.write_bytes(b"theirs")
        with pytest.raises(FileExistsError):
            file.finish()

    assert os.listdir(tmp_path) == ["value"]
    assert path.read_bytes() == b"theirs"
