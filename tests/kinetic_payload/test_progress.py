from __future__ import annotations

import pytest

from kinetic_payload.progress import Progress, duration_text, size_text


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_shows_bytes_rate_and_time_left() -> None:
    clock = Clock()
    progress = Progress("uploading data", 1_000_000_000, clock=clock)
    assert progress.text == "uploading data: 0 B of 1.0 GB"
    clock.now += 2
    progress.advance(250_000_000)
    assert progress.text == "uploading data: 250.0 MB of 1.0 GB, 125.0 MB/s, 6s left"
    clock.now += 6
    progress.advance(750_000_000)
    assert progress.text == "uploading data: 1.0 GB of 1.0 GB, 125.0 MB/s"
    assert progress.summary == "uploading data: 1.0 GB in 8s, 125.0 MB/s"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (5e15, "5000.0 TB")],
)  # fmt: skip
def test_sizes_are_short(size: float, text: str) -> None:
    assert size_text(size) == text


def test_sizes_of_memory_have_units_that_are_powers_of_two() -> None:
    assert [size_text(size, binary=True) for size in (2 << 30, 1536 << 20, 1000)] == [
        "2 GiB", "1.5 GiB", "1000 B",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text", "coarse"),
    [(0.4, "0s", "0s"), (59.9, "59s", "59s"), (60, "1m 00s", "60s"), (119, "1m 59s", "119s"),
     (120, "2m 00s", "2m"), (3661, "1h 01m", "61m"), (7199, "1h 59m", "119m"), (7500, "2h 05m", "2h"),
     (93_600, "1d 02h", "26h"), (172_799, "1d 23h", "47h"), (172_800, "2d 00h", "2d")],
)  # fmt: skip
def test_durations_are_short(seconds: float, text: str, coarse: str) -> None:
    assert (duration_text(seconds), duration_text(seconds, coarse=True)) == (text, coarse)
