from __future__ import annotations

import threading
from pathlib import Path

from kinetic_payload.files.locks import locked


def test_two_paths_of_a_file_are_one_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    waits, let_go = threading.Event(), threading.Event()
    order: list[str] = []

    def second() -> None:
        with locked(f"{tmp_path}/link/lock", waiting=waits.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(f"{tmp_path}/real/lock", waiting=let_go.set):
        thread.start()
        assert waits.wait(100)
        order.append("first")
    thread.join()

    assert order == ["first", "second"]
    assert not let_go.is_set()
