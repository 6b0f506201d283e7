import io
import random
from pathlib import Path

import pytest

from kinetic.backends import LogLine
from kinetic.local.logs import LONGEST_LINE, follow_lines, read_lines, tail_offset
from kinetic.local.paths import JobFolder
from kinetic.local.stored_logs import stored_lines
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores.folder import FolderStore


def a_folder(path: Path, *logs: bytes, attempt: int = 1) -> JobFolder:
    folder = JobFolder(str(path))
    Path(folder.attempt(attempt)).mkdir(parents=True)
    for host, data in enumerate(logs):
        Path(folder.log(attempt, host)).write_bytes(data)
    return folder


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


def test_the_tail_of_a_gigabyte_is_read_from_its_end(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, b"")
    with open(folder.log(1, 0), "wb") as stream:
        stream.truncate(1 << 30)  # A hole: whoever reads all of it takes seconds.
        stream.seek(0, 2)
        stream.write("\nlast but one\nlast é".encode())
    assert texts(read_lines(folder, 1, tail=2)) == ["last but one", "last é"]


@pytest.mark.parametrize("seed", range(30))
def test_the_tail_is_what_splitting_everything_would_give(seed: int) -> None:
    rand = random.Random(seed)
    text = "".join(
        rand.choice(["x" * rand.choice([0, 1, 70_000]), "\n"]) for _ in range(rand.randrange(12))
    )
    lines = text.splitlines()
    for count in range(8):
        stream = io.BytesIO(text.encode())
        stream.seek(tail_offset(stream, count))
        assert stream.read().decode().splitlines() == (lines[-count:] if count else [])


def test_hosts_speak_in_turn_and_the_tail_is_aligned_at_the_end(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, b"a1\na2\na3\n", b"b1\nb2\n")
    assert texts(read_lines(folder, 2)) == ["a1", "b1", "a2", "b2", "a3"]
    assert texts(read_lines(folder, 2, tail=4)) == ["a2", "b1", "a3", "b2"]
    assert texts(read_lines(folder, 2, tail=100)) == ["a1", "a2", "b1", "a3", "b2"]
    assert list(read_lines(folder, 2, tail=1)) == [LogLine("a3", 0, 1)]


def test_only_the_latest_attempt_is_read(tmp_path: Path) -> None:
    a_folder(tmp_path, b"old\n", attempt=9)
    folder = a_folder(tmp_path, b"new\n", attempt=10)
    assert list(read_lines(folder, 1)) == [LogLine("new", 0, 10)]


def test_a_job_without_a_log_has_no_lines(tmp_path: Path) -> None:
    folder = JobFolder(str(tmp_path / "gone"))
    assert list(read_lines(folder, 2)) == list(read_lines(folder, 2, tail=5)) == []
    assert list(follow_lines(folder, 1, tail=None, ended=lambda: True, pause=lambda _: None)) == []


def test_a_follower_loses_nothing_however_the_bytes_arrive(tmp_path: Path) -> None:
    data = "première\r\n[info] mid\rway\n\nlast without end é".encode() + b"\xff"
    folder = a_folder(tmp_path, b"")
    left = [data[n : n + 1] for n in range(len(data))]

    def pause(_: float) -> None:
        if left:
            with open(folder.log(1, 0), "ab") as stream:
                stream.write(left.pop(0))

    lines = follow_lines(folder, 1, tail=None, ended=lambda: not left, pause=pause)
    assert texts(lines) == ["première", "[info] mid\rway", "", "last without end é\ufffd"]


def test_a_follower_sees_a_progress_bar_move(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, b"start\n")
    left = [b"\r 10%", b"\r 20%", b"\r 30%", b"\r 40%", b"\r100%\nend\n"]
    now = 0.0

    def pause(_: float) -> None:
        nonlocal now
        now += 0.6
        if left:
            with open(folder.log(1, 0), "ab") as stream:
                stream.write(left.pop(0))

    lines = follow_lines(
        folder, 1, tail=None, ended=lambda: not left, pause=pause, clock=lambda: now
    )
    # Once a second, and only what is surely complete; the last state with the end of the line.
    assert texts(lines) == ["start", " 10%", " 30%", " 40%\r100%", "end"]


def test_a_log_reads_alike_live_and_stored_wherever_it_is_cut(tmp_path: Path) -> None:
    data = "é\n\r\nü\r\n".encode() + "✓".encode() * (LONGEST_LINE // 2) + "\nß no end".encode()
    folder, store = a_folder(tmp_path / "job", data + b"\xc3"), FolderStore(tmp_path / "store")
    for seq, start in enumerate(range(0, len(data), 100_001)):
        chunk = (data + b"\xc3")[start : start + 100_001]
        store.write(JobObjects("j").log_chunk(1, 0, seq), chunk)
    live = texts(read_lines(folder, 1))
    assert live == texts(stored_lines(store, "j"))
    assert live[:3] == ["é", "", "ü"]
    assert "".join(live[3:-1]) == "✓" * (LONGEST_LINE // 2)
    assert live[-1] == "ß no end\ufffd"
    for count in (0, 1, 2, 5):
        tail = texts(read_lines(folder, 1, tail=count))
        assert tail == texts(stored_lines(store, "j", tail=count)) == live[len(live) - count :]


def test_what_is_written_just_before_the_end_is_delivered(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, b"first\n")

    def ended() -> bool:
        with open(folder.log(1, 0), "ab") as stream:
            stream.write(b"final words\n")
        return True

    lines = follow_lines(folder, 1, tail=None, ended=ended, pause=lambda _: None)
    assert next(lines).text == "first"
    assert next(lines).text == "final words"


def test_a_follower_begins_with_the_tail_it_was_asked_for(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, b"1\n2\n3\n4")
    lines = follow_lines(folder, 1, tail=2, ended=lambda: True, pause=lambda _: None)
    assert texts(lines) == ["3", "4"]


def test_a_line_that_never_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, b"=" * 3_000_000)
    lines = list(follow_lines(folder, 1, tail=None, ended=lambda: True, pause=lambda _: None))
    assert "".join(texts(lines)) == "=" * 3_000_000
    assert len(lines) > 1
