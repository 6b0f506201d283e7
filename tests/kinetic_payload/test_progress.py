"""Progress in words, by a clock that is given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kinetic_payload.progress import Progress, duration_text, silent, size_text


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_rate_and_time_left_are_told() -> None:
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


def test_without_a_total_nothing_is_promised() -> None:
    clock = Clock()
    progress = Progress("packing", None, clock=clock)
    clock.now += 1
    progress.advance(1500)
    assert progress.text == "packing: 1.5 kB, 1.5 kB/s"


def test_threads_lose_no_byte() -> None:
    progress = Progress("moving", None)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: progress.advance(1), range(20_000)))
    assert progress.done == 20_000


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (5e15, "5000.0 TB")],
)  # fmt: skip
def test_sizes_are_short(size: float, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("size", "text"), [(2 << 30, "2 GiB"), (1536 << 20, "1.5 GiB"), (1000, "1000 B")]
)
def test_memory_has_units_that_are_powers_of_two(size: float, text: str) -> None:
    assert size_text(size, binary=True) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (59.9, "59s"),
        (60, "1m 00s"),
        (200, "3m 20s"),
        (3661, "1h 01m"),
        (7500, "2h 05m"),
        (93_600, "1d 02h"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172_799, "47h"),
        (172_800, "2d"),
    ],
)
def test_coarse_durations_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds, coarse=True) == text


def test_silence_takes_everything() -> None:
    with silent("uploading", 10) as advance:
        advance(5)
        advance(-5)
