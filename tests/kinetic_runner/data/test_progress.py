from kinetic_runner.data.progress import AGAIN, FIRST, TransferProgress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_several_transfers_are_one_line_now_and_then_and_one_at_the_end() -> None:
    clock, lines = Clock(), []
    transfers = TransferProgress("downloading data", print_line=lines.append, clock=clock)

    with transfers("one", 6_000_000) as first, transfers("other", 4_000_000) as second:
        first(1_000_000)
        clock.now = FIRST
        second(1_000_000)
        first(1_000_000)
        clock.now = FIRST + AGAIN
        second(3_000_000)
        first(4_000_000)
    transfers.finish()

    assert lines == [
        "downloading data: 2.0 MB of 10.0 MB, 1.0 MB/s, 8s left",
        "downloading data: 6.0 MB of 10.0 MB, 272.7 kB/s, 15s left",
        "downloading data: 10.0 MB in 22s, 454.5 kB/s",
    ]


def test_what_is_over_in_a_moment_is_not_mentioned() -> None:
    clock, lines = Clock(), []
    transfers = TransferProgress("downloading data", print_line=lines.append, clock=clock)

    with transfers("one", 10) as advance:
        clock.now = FIRST / 2
        advance(10)
    transfers.finish()

    assert lines == []


def test_where_one_size_is_unknown_none_is_promised() -> None:
    clock, lines = Clock(), []
    transfers = TransferProgress("downloading data", print_line=lines.append, clock=clock)

    with transfers("one", 10_000) as advance, transfers("other", None):
        clock.now = FIRST
        advance(2000)

    assert lines == ["downloading data: 2.0 kB, 1.0 kB/s"]
