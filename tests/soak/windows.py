"""Windows of some seconds in which one step of a job over a bucket fails."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.soak.places import Place, Submitter, ended_processes, print_failure

from kinetic_payload.layout import JobObjects

STEPS: dict[str, dict[str, Any]] = {
    "look for the project": {"operation": "objects.get", "name": "contexts/*"},
    "send the project": {"operation": "objects.insert*", "name": "contexts/*"},
    "look for the data": {"operation": "objects.get*", "name": "data-markers/*"},
    "list the data": {"operation": "objects.list"},
    "send the data": {"operation": "objects.insert*", "name": "*/packs/*"},
    "mark the data": {"operation": "objects.insert*", "name": "data-markers/*"},
    "send the call": {"operation": "objects.insert*", "name": "*/payload.pkl"},
    "record": {"operation": "objects.insert*", "name": "*/handle.json"},
    "claim": {"operation": "objects.insert*", "name": "*.claim"},
    "fetch the call": {"operation": "objects.get.media", "name": "*/payload.pkl"},
    "fetch the project": {"operation": "objects.get.media", "name": "contexts/*"},
    "fetch the data": {"operation": "objects.get*", "name": "*/packs/*"},
    "write the log": {"operation": "objects.insert*", "name": "logs/*"},
    "store the value": {"operation": "objects.insert*", "name": "*/host-0.pkl"},
    "report": {"operation": "objects.insert*", "name": "*/host-0.json"},
    "write the outcome": {"operation": "objects.insert*", "name": "*/outcome.json"},
    "read the record": {"operation": "objects.get*", "name": "*/handle.json"},
    "read the outcome": {"operation": "objects.get*", "name": "*/outcome.json"},
    "read the report": {"operation": "objects.get*", "name": "*/host-0.json"},
    "read the value": {"operation": "objects.get*", "name": "*/host-0.pkl"},
    "clean up": {"method": "DELETE"},
    "everything": {},
}
FINISHED = ("store the value", "report", "write the outcome")
"""The function has ended: only a value is right."""

FAULTS: dict[str, dict[str, Any]] = {
    "503": {"status": 503},
    "429": {"status": 429},
    "401": {"status": 401},
    "403": {"status": 403},
    "no answer": {"reset": "before"},
    "lost answer": {"reset": "after"},
    "half an answer": {"reset": "response"},
    "an answer that ends early": {"reset": "response", "polite": True},
    "half a request": {"reset": "request"},
    "a portal's page": {"page": "<html><title>Sign in</title></html>"},
    "an empty page": {"page": ""},
    "slow answers": {"delay": 1.0},
    "few bytes a second": {"drip": 20_000.0},
}
WINDOWS = (3.0, 20.0)
SECONDS = 240.0
"""For a submitter to end."""

Case = tuple[int, str, str, float]
COLUMNS = {"value": "value", "error": "one clear error", "not hit": "not hit", "FAILED": "failures"}


def run(given: argparse.Namespace) -> int:
    """Run the cases that were asked for, print a table, return whether any failed."""
    chosen = [
        (step, fault, window)
        for step in given.step or STEPS
        for fault in given.fault or FAULTS
        for window in given.window or WINDOWS
    ]
    random.Random(given.seed).shuffle(chosen)
    end = None if given.rounds is None else given.first + given.rounds
    cases: list[Case] = [(number, *case) for number, case in enumerate(chosen)][given.first : end]
    began = time.monotonic()

    def run_one(case: Case) -> str:
        late = time.monotonic() - began > 60 * given.minutes
        return "not run" if late else _ending_of(Path(folder), case)

    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        ThreadPoolExecutor(given.at_once) as pool,
    ):
        endings = dict(zip(cases, pool.map(run_one, cases), strict=True))
    print(
        f"| fault | seconds | cases | {' | '.join(COLUMNS.values())} |\n|---|---|---|---|---|---|---|"
    )
    for key in [*sorted({case[2:] for case in cases}), ("all", "")]:
        counts = Counter(end for case, end in endings.items() if key in (case[2:], ("all", "")))
        del counts["not run"]
        figures = [counts.total(), *(counts[ending] for ending in COLUMNS)]
        print(f"| {key[0]} | {key[1] and f'{key[1]:g}'} | {' | '.join(map(str, figures))} |")
    ran = sum(ending != "not run" for ending in endings.values())
    print(f"{ran} cases in {time.monotonic() - began:.0f} s")
    return "FAILED" in endings.values()


def _ending_of(folder: Path, case: Case) -> str:
    """Run a case and print its end; return the key of its column."""
    number, step, fault, window = case
    try:
        ending, note = _run(folder, case)
    except Exception as error:
        ending, note = "FAILED", f"{type(error).__name__}: {error}"
    if ending == "FAILED":
        again = f"faults --step {step!r} --fault {fault!r} --window {window:g}"
        print_failure([note], fault, again, None)
    text = f"{number} {fault} for {window:g} s at {step!r} → {ending} {note}"
    print(text, file=sys.stderr, flush=True)
    return ending


def _run(folder: Path, case: Case) -> tuple[str, str]:
    number, step, fault, window = case
    with Place(folder / str(number), "bucket", home=folder / f"home-{number % 4}") as place:
        assert place.server is not None
        planned = place.server.faults.add(**STEPS[step], **FAULTS[fault], seconds=window)
        plan = {
            "number": number, "hosts": 1, "retries": 0, "size": 300_000, "stopping": False,
            "seconds": 0.05,
            "marks": str(place.folder), "waiting": True, "window": window,
            "data": [str(place.folder / "data")],
        }  # fmt: skip
        submitter = place.submit(plan)
        ended = submitter.end(SECONDS)
        place.server.faults.clear()
        messages, job_id = submitter.messages, submitter.message("job")
        if not ended:
            return "FAILED", f"the submitter did not end: {messages}"
        if job_id and (left := ended_processes(job_id)):
            return "FAILED", left
        if False in (submitter.message("right"), submitter.message("later")):
            return "FAILED", f"a wrong value: {messages}"
        error = next((one for one in messages if "error" in one), None)
        if error is None:
            return _success(place, submitter, hit=bool(planned.hits))
        text = f"{error['error']}: {error['message']}"
        if not (error["known"] and error["message"] and error["hint"]):
            return "FAILED", f"no clear error: {text}"
        if "Traceback" in submitter.errors:
            return "FAILED", f"more than one error: {submitter.errors[-500:]}"
        if submitter.message("right"):
            return "error", f"of clean-up, after the value: {text}"
        function_ended = any(place.folder.glob("ended-*")) or step in FINISHED
        if job_id is not None and submitter.message("later") is None and function_ended:
            return "FAILED", f"the value is lost: {text}, then {messages[-1]}"
        return "error", text


def _success(place: Place, submitter: Submitter, *, hit: bool) -> tuple[str, str]:
    if not submitter.message("cleaned"):
        return "FAILED", f"it ended early: {submitter.messages} {submitter.errors[-500:]}"
    unrecorded = [
        name for name in place.of_jobs() if not place.has(JobObjects(name.partition("/")[0]).handle)
    ]
    if unrecorded:
        return "FAILED", f"left after a clean-up: {unrecorded}"
    return ("value" if hit else "not hit"), ""
