"""Twelve jobs over a bucket with random errors and an outage of half a minute."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kinetic_servers.http.faults import Fault

JOBS = """
    import kinetic

    @kinetic.run(accelerator="cpu")
    def square(x):
        return {"x": x, "square": x * x, "large": bytes(x * 10_000)}
"""


@pytest.mark.slow  # An outage of 30 s, and two dozen processes.
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore:gs.//.* is unavailable")  # That is what is tried.
def test_twelve_jobs_give_twelve_values_through_errors_and_an_outage(desk: Any) -> None:
    square = desk.module("jobs", JOBS).square
    faults = desk.server.faults
    errors = faults.add(status=503, probability=0.025, seed=4)
    outages: list[Fault] = []
    began: list[int] = []
    lock = threading.Lock()

    def run(x: int) -> dict[str, Any]:
        with lock:
            began.append(x)
            if len(began) == 7:
                outages.append(faults.outage(30))
        found: dict[str, Any] = square.run_async(x).result(timeout=300)
        return found

    with ThreadPoolExecutor(6) as pool:
        values = list(pool.map(run, range(12)))

    assert values == [{"x": x, "square": x * x, "large": bytes(x * 10_000)} for x in range(12)]
    assert desk.of_jobs() == []
    assert errors.hits > 3
    assert outages[0].hits > 10
