from kinetic_runner.data.progress import AGAIN, FIRST, TransferProgress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.transfers = TransferProgress(
            "downloading data", print_line=self.lines.append, clock=lambda: self.now
        )


def test_several_transfers_share_a_line_now_and_then_and_have_one_at_the_end() -> None:
    clock = Clock()

    with clock.transfers("one", 6_000_000) as first, clock.transfers("other", 4_000_000) as second:
        first(1_000_000)
        clock.now = FIRST
        second(1_000_000)
        first(1_000_000)
        clock.now = FIRST + AGAIN
        second(3_000_000)
        first(4_000_000)
    clock.transfers.finish()

    assert clock.lines == [
        "downloading data: 2.0 MB of 10.0 MB, 1.0 MB/s, 8s left",
        "downloading data: 6.0 MB of 10.0 MB, 272.7 kB/s, 15s left",
        "downloading data: 10.0 MB in 22s, 454.5 kB/s",
    ]


def test_a_short_transfer_prints_nothing() -> None:
    clock = Clock()

    with clock.transfers("one", 10) as advance:
        clock.now = FIRST / 2
        advance(10)
    clock.transfers.finish()

    assert clock.lines == []


def test_where_one_size_is_unknown_no_end_is_promised() -> None:
    clock = Clock()

    with clock.transfers("one", 10_000) as advance, clock.transfers("other", None):
        clock.now = FIRST
        advance(2000)

    assert clock.lines == ["downloading data: 2.0 kB, 1.0 kB/s"]
