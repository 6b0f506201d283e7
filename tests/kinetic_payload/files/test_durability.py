from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_payload.files.durability import flush_to_disk


@pytest.mark.parametrize("supported", [True, False])
def test_on_macos_a_barrier_orders_what_reaches_the_disk(tmp_path: Path, supported: bool) -> None:
    asked: list[int] = []

    def control(_: int, command: int) -> None:
        asked.append(command)
        if not supported:
            raise OSError(45, "Operation not supported")

    with (tmp_path / "file").open("wb") as stream:
        flush_to_disk(stream.fileno(), platform="darwin", control=control)
        flush_to_disk(stream.fileno(), platform="linux", control=control)

    assert asked == [85]
