import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kinetic.backends.backend import LogLine
from kinetic.backends.local.log_files import follow_lines, latest_attempt, read_lines
from kinetic.home.paths import JobFolder
from kinetic.jobs.log_lines import tail_size
from kinetic.jobs.stored_logs import follow_stored, stored_lines
from kinetic.log_parts import LONGEST_LINE, joined
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import ObjectInfo
from kinetic_payload.testing import MemoryStore
from kinetic_servers.launches import a_launch


def a_folder(path: Path, *logs: bytes, attempt: int = 1) -> JobFolder:
    folder = JobFolder(str(path))
    Path(folder.attempt(attempt)).mkdir(parents=True)
    for host, data in enumerate(logs):
        Path(folder.log(attempt, host)).write_bytes(data)
    return folder


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(30))
def test_the_tail_is_the_end_of_all_lines_however_the_log_is_read(seed: int) -> None:
    rand = random.Random(seed)
    text = "".join(
        rand.choice(["x" * rand.choice([0, 1, 70_000]), "\n"]) for _ in range(rand.randrange(12))
    )
    lines = text.splitlines()
    for count in range(8):
        cuts = sorted(rand.choices(range(len(text) + 1), k=rand.randrange(9)))
        blocks = [text[a:b].encode() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        size, cut = tail_size(reversed(blocks), count)
        assert text[len(text) - size :].splitlines() == (lines[-count:] if count else [])
        assert not cut


ENDLESS = 300
"""MiB of a line that never ends: too much for memory."""


class Endless(MemoryStore):
    """A store whose log is such a line, which takes no memory; it counts what is read."""

    def __init__(self, end: bytes = b"") -> None:
        super().__init__()
        self.reads = 0
        self.record = a_launch(self, "").record
        chunk = JobObjects(self.record.job_id).log_chunk
        for number in range(ENDLESS):
            self.write(chunk(1, 0, number), b"")
        self.write(chunk(1, 0, ENDLESS), end)

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        self.reads += 1
        return super().read(name, start=start, end=end) or b"x" * (1 << 20)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_after=start_after):
            yield info if info.size else replace(info, size=1 << 20)


def endless_folder(path: Path, end: bytes = b"") -> JobFolder:
    folder = a_folder(path, b"")
    with open(folder.log(1, 0), "wb") as stream:
        stream.truncate(ENDLESS << 20)  # A hole, which reads as zeros.
        stream.seek(0, 2)
        stream.write(end)
    return folder


@pytest.fixture
def little_memory() -> Iterator[None]:
    """The test may take no more memory than a few of the longest lines."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20, f"{peak >> 20} MiB"


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("tail", [1, 100])
def test_the_tail_of_a_line_that_never_ends_is_its_last_part(
    tmp_path: Path, follow: bool, tail: int
) -> None:
    folder, store = endless_folder(tmp_path, b"end\nlast"), Endless(b"end\nlast")
    if follow:
        live = follow_lines(folder, 1, tail=tail, ended=lambda: True, pause=lambda _: None)
        stored = follow_stored(
            store, store.record, tail=tail, ended=lambda: True, pause=lambda: None
        )
    else:
        live = read_lines(folder, 1, tail=tail)
        stored = stored_lines(store, store.record.job_id, 1, tail=tail)
    for lines in (list(live), list(stored)):
        assert lines[-1].text == "last"
        assert sum(len(line.text) for line in lines) < 6 << 20
        noted = [line.text.startswith("[kinetic] (The beginning of this") for line in lines]
        assert noted == ([True] + [False] * (len(lines) - 1) if tail > 1 else [False])
    assert store.reads < 10


@pytest.mark.usefixtures("little_memory")
def test_a_line_that_never_ends_is_followed_piece_by_piece(tmp_path: Path) -> None:
    folder, store = endless_folder(tmp_path), Endless()
    live = follow_lines(folder, 1, tail=None, ended=lambda: True, pause=lambda _: None)
    stored = follow_stored(store, store.record, tail=None, ended=lambda: True, pause=lambda: None)
    assert sum(len(line.text) for line in live) == ENDLESS << 20
    assert sum(len(line.text) for line in stored) == (ENDLESS + 1) << 20


def test_lines_of_the_hosts_alternate_and_their_tails_end_together(tmp_path: Path) -> None:
    nothing = JobFolder(str(tmp_path / "gone"))
    assert list(read_lines(nothing, 2)) == list(read_lines(nothing, 2, tail=5)) == []
    a_folder(tmp_path, b"old\n", attempt=9)
    folder = a_folder(tmp_path, b"a1\na2\na3\n", b"b1\nb2\n", attempt=10)
    assert texts(read_lines(folder, 2)) == ["a1", "b1", "a2", "b2", "a3"]
    assert texts(read_lines(folder, 2, tail=4)) == ["a2", "b1", "a3", "b2"]
    assert texts(read_lines(folder, 2, tail=100)) == ["a1", "a2", "b1", "a3", "b2"]
    assert list(read_lines(folder, 2, tail=1)) == [LogLine("a3", 0, 10)]


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


MIXED = b"out\n\x10\x02warn\npart\x10\n\x10\x02\r 10%\x10\n-done\nn\x10\x10\x02\x10\x10\n\x10\x02\r100%\n\x10\x02end"
"""A log whose lines show their streams, with two lines that were split."""


@pytest.mark.parametrize("cut", range(0, len(MIXED), 7))
def test_a_log_tells_the_streams_apart_however_it_is_read(tmp_path: Path, cut: int) -> None:
    folder = a_folder(tmp_path, MIXED)
    log = Written({"1/0/0": MIXED[:cut]}, {"1/0/1": MIXED[cut:]})
    followed = follow_lines(folder, 1, tail=None, ended=lambda: True, pause=lambda _: None)
    step = log.lines()

    for lines in (
        followed,
        read_lines(folder, 1),
        step,
        stored_lines(log.store, log.record.job_id, 1),
    ):
        found = [(line.stream, line.text) for line in joined(lines)]
        assert [text for stream, text in found if stream == "stdout"] == [
            "out", "part-done", "n\x10\x02\x10",
        ]  # fmt: skip
        assert [text for stream, text in found if stream == "stderr"] == ["warn", "100%", "end"]
    # Parts of a line are no lines of their own.
    assert texts(read_lines(folder, 1, tail=2)) == ["100%", "end"]


def test_a_log_reads_alike_live_and_stored_wherever_it_is_cut(tmp_path: Path) -> None:
    data = "é\n\r\nü\r\n".encode() + "✓".encode() * (LONGEST_LINE // 2) + "\nß no end".encode()
    folder, store = a_folder(tmp_path / "job", data + b"\xc3"), FolderStore(tmp_path / "store")
    for seq, start in enumerate(range(0, len(data), 100_001)):
        chunk = (data + b"\xc3")[start : start + 100_001]
        store.write(JobObjects("j").log_chunk(1, 0, seq), chunk)
    live = texts(read_lines(folder, 1))
    assert live == texts(stored_lines(store, "j", 1))
    assert live[:3] == ["é", "", "ü"]
    assert "".join(live[3:-1]) == "✓" * (LONGEST_LINE // 2)
    assert live[-1] == "ß no end\ufffd"
    for count in (0, 1, 2, 5):
        tail = texts(read_lines(folder, 1, tail=count))
        assert tail == texts(stored_lines(store, "j", 1, tail=count)) == live[len(live) - count :]


def test_an_attempt_that_begins_and_ends_while_a_follower_looks_is_not_missed(
    tmp_path: Path,
) -> None:
    folder = a_folder(tmp_path, b"")

    def ended() -> bool:
        if latest_attempt(folder) == 1:
            a_folder(tmp_path, b"in 2\nand more\n", attempt=2)
        return True

    # The tail is that of the attempt with which the follower begins.
    lines = follow_lines(folder, 1, tail=1, ended=ended, pause=lambda _: None)
    assert texts(lines) == ["[kinetic] Attempt 1 ended. Attempt 2 begins.", "in 2", "and more"]


class Written:
    """A stored log that grows by one step whenever its reader pauses, and then the job ends."""

    def __init__(self, *steps: dict[str, bytes], **job: object) -> None:
        self.store = MemoryStore()
        self.record: JobRecord = a_launch(self.store, "", **job).record  # type: ignore[arg-type]
        self.names = JobObjects(self.record.job_id)
        self.steps = list(steps)
        self.step()

    def step(self) -> None:
        for name, data in self.steps.pop(0).items() if self.steps else ():
            attempt, host, seq = map(int, name.split("/"))
            self.store.write(self.names.claim(attempt, host), b"{}")
            self.store.write(self.names.log_chunk(attempt, host, seq), data)

    def lines(self, tail: int | None = None) -> list[LogLine]:
        return list(
            follow_stored(
                self.store,
                self.record,
                tail=tail,
                ended=lambda: not self.steps,
                pause=self.step,
            )
        )


def test_a_stored_log_is_followed_as_its_chunks_arrive_and_its_end_is_not_lost() -> None:
    log = Written(
        {"1/0/0": b"a1\na"},
        {"1/0/1": b"2\n", "1/1/0": "b1\né".encode()[:-1]},
        {},
        {"1/1/1": "é\n".encode()[1:] + b"b3", "1/0/2": b"a3\n"},
        hosts=2,
    )
    found = log.lines()
    assert [(line.host, line.text) for line in found] == [
        (0, "a1"), (0, "a2"), (1, "b1"), (0, "a3"), (1, "é"), (1, "b3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (0, ["", "later"]),
        (1, ["th", "later"]),
        (2, ["2", "th", "later"]),
        (9, ["1", "2", "th", "later"]),
    ],
)
def test_following_a_stored_log_may_begin_near_its_end(tail: int, expected: list[str]) -> None:
    log = Written({"1/0/0": b"1\n2\n", "1/0/1": b"th"}, {"1/0/2": b"\nlater\n"})
    assert [line.text for line in log.lines(tail)] == expected


def test_a_followed_stored_log_continues_with_the_next_attempt_and_the_reason() -> None:
    log = Written({"1/0/0": b"first\n"}, {"2/0/0": b"second\n"}, {}, retries=1)
    report = HostOutcome(
        job_id=log.record.job_id, attempt=1, host=0, succeeded=False, reason="exception",
        phase="call", exit_code=1, message="ValueError: no.",
    )  # fmt: skip
    log.store.write(log.names.host_outcome(1, 0), encode(report))
    assert [(line.attempt, line.text) for line in log.lines()] == [
        (1, "first"),
        (2, "[kinetic] Attempt 1 ended: ValueError: no. Attempt 2 begins."),
        (2, "second"),
    ]


def test_a_stored_log_is_read_in_order_when_several_chunks_are_on_their_way() -> None:
    class Distant(MemoryStore):
        concurrency = 4  # type: ignore[assignment]

    log = Written()
    log.store.__class__ = Distant
    for number in range(50):
        log.store.write(log.names.log_chunk(1, 0, number), b"%d\n" % number)
    expected = [str(number) for number in range(50)]
    assert texts(stored_lines(log.store, log.record.job_id, 1)) == expected
    assert texts(log.lines()) == expected
    assert next(iter(stored_lines(log.store, log.record.job_id, 1))).text == "0"
