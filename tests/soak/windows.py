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

from tests.soak.places import Place, ended_processes

from kinetic_payload.layout import JobObjects

STEPS: dict[str, dict[str, Any]] = {
    "look for the project": {"operation": "objects.get", "name": "contexts/*"},
    "send the project": {"operation": "objects.insert*", "name": "contexts/*"},
    "look for the data": {"operation": "objects.get*", "name": "data-markers/*"},
    "list the data": {"operation": "objects.list"},
    "send the data": {"operation": "objects.insert*", "name": "*/packs/*"},
    "vouch for the data": {"operation": "objects.insert*", "name": "data-markers/*"},
    "send the call": {"operation": "objects.insert*", "name": "*/payload.pkl"},
    "record": {"operation": "objects.insert*", "name": "*/handle.json"},
    "claim": {"operation": "objects.insert*", "name": "*.claim"},
    "renew the lease": {"operation": "objects.insert*", "name": "*/lease.json"},
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


def run(given: argparse.Namespace) -> int:
    """Run the cases that were asked for, print a table, return whether any was not as it must be."""
    cases: list[Case] = [
        (0, step, fault, window)
        for step in given.step or STEPS
        for fault in given.fault or FAULTS
        for window in given.window or WINDOWS
    ]
    random.Random(given.seed).shuffle(cases)
    end = None if given.rounds is None else given.first + given.rounds
    cases = [(number, *case[1:]) for number, case in enumerate(cases)][given.first : end]
    began = time.monotonic()

    def run_one(case: Case) -> tuple[str, str]:
        if time.monotonic() - began > 60 * given.minutes:
            return "not run", ""
        return _told(Path(folder), case)

    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        ThreadPoolExecutor(given.at_once) as pool,
    ):
        found = list(pool.map(run_one, cases))
    lines = [
        "| fault | seconds | cases | value | one clear error | not hit | failures |",
        "|---|---|---|---|---|---|---|",
    ]
    together = [one for one in zip(cases, found, strict=True) if one[1][0] != "not run"]
    for fault, window in sorted({(case[2], case[3]) for case in cases}):
        ends = Counter(end for case, (end, _) in together if case[2:] == (fault, window))
        lines.append(_line(fault, f"{window:g}", ends))
    lines.append(_line("all", "", Counter(end for _, (end, _) in together)))
    print("\n".join(lines))
    print(f"{len(together)} cases in {time.monotonic() - began:.0f} s")
    return any(problem for _, problem in found)


def _line(fault: str, seconds: str, ends: Counter[str]) -> str:
    figures = [ends.total(), *(ends[one] for one in ("value", "error", "not hit", "FAILED"))]
    return f"| {fault} | {seconds} | {' | '.join(map(str, figures))} |"


def _told(folder: Path, case: Case) -> tuple[str, str]:
    number, step, fault, window = case
    try:
        ending, note = _run(folder, case)
        problem = note if ending == "FAILED" else ""
    except Exception as error:
        ending, note, problem = "FAILED", "", f"{type(error).__name__}: {error}"
    if problem:
        again = f"--step {step!r} --fault {fault!r} --window {window:g}"
        print(
            f"FAILED {' '.join(problem.split())} | python -m tests.soak faults {again}", flush=True
        )
    text = f"{number} {fault} for {window:g} s at {step!r} → {ending} {note}"
    print(text, file=sys.stderr, flush=True)
    return ending, problem


def _run(folder: Path, case: Case) -> tuple[str, str]:
    number, step, fault, window = case
    with Place(folder / str(number), "bucket", home=folder / f"home-{number % 4}") as place:
        assert place.server is not None
        planned = place.server.faults.add(**STEPS[step], **FAULTS[fault], seconds=window)
        plan = {
            "number": number, "hosts": 1, "retries": 0, "size": 300_000, "stopping": False,
            # Long enough for a lease to be renewed once.
            "seconds": 12 if step == "renew the lease" else 0.05,
            "marks": str(place.folder), "waiting": True, "window": window,
            "data": [str(place.folder / "data")],
        }  # fmt: skip
        submitter = place.submit(plan)
        ended = submitter.end(SECONDS)
        place.server.faults.clear()
        said, job_id = submitter.said, submitter.heard("job")
        if not ended:
            return "FAILED", f"the submitter did not end: {said}"
        left = ended_processes(job_id) if job_id else ""
        if left:
            return "FAILED", left
        unrecorded = [
            name for name in place.of_jobs()
            if not place.has(JobObjects(name.partition("/")[0]).handle)
        ]  # fmt: skip
        error = next((one for one in said if "error" in one), None)
        if submitter.heard("right") is False or submitter.heard("later") is False:
            return "FAILED", f"a wrong value: {said}"
        if error is None:
            if not submitter.heard("cleaned"):
                return "FAILED", f"no word: {said} {submitter.errors[-500:]}"
            if unrecorded:
                return "FAILED", f"left after a clean-up: {unrecorded}"
            return ("value" if planned.hits else "not hit"), ""
        text = f"{error['error']}: {error['message']}"
        if not (error["known"] and error["message"] and error["hint"]):
            return "FAILED", f"no clear error: {text}"
        if "Traceback" in submitter.errors:
            return "FAILED", f"more than one error: {submitter.errors[-500:]}"
        if submitter.heard("right"):
            return "error", f"of clean-up, after the value: {text}"
        if job_id is not None and submitter.heard("later") is None:
            began = any(place.folder.glob("ended-*"))
            if began or step in FINISHED:
                return "FAILED", f"the value is lost: {text}, then {said[-1]}"
        return "error", text
