"""Repetition of failed tests: which of them are unsteady, and whether the run may pass all the same.

pytest records the results: its cache has the names of the failed tests (`--last-failed` runs them
again), and its JUnit report has the output of each test.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_UNSTEADY = 2
"""If more tests than this pass only the second time, the run fails."""
MOST_REPEATED = 20
"""If more tests than this fail, none is run again: such a failure is not chance."""
SHOWN = 10_000
"""Characters of each output of an unsteady test."""


@dataclass(frozen=True)
class Case:
    """One test of one report."""

    failure: str | None
    """Why it failed, or None."""
    output: str
    """The output of the test and of the code that it tests."""


@dataclass(frozen=True)
class Records:
    """The files in which pytest records the results of one stage's tests."""

    folder: Path
    name: str

    def report(self, run: int) -> Path:
        """Return the path of the JUnit report of this *run*: 1 for all tests, 2 for the failed ones."""
        return self.folder / f"{self.name}-{run}.xml"

    def options(self, run: int) -> list[str]:
        """Return options that make pytest record results; in run 2 it runs only failed tests, one at a time."""
        recording = [
            f"--junitxml={self.report(run)}",
            "--override-ini=junit_logging=all",
            f"--override-ini=cache_dir={self.folder / self.name}-cache",
        ]
        return (
            recording
            if run == 1
            else [*recording, "--last-failed", "--last-failed-no-failures=none", "-n0"]
        )

    def cases(self, run: int) -> dict[str, Case]:
        """Return the tests of this *run* by name; none if pytest wrote no report."""
        try:
            root = ElementTree.parse(self.report(run)).getroot()
        except (OSError, ElementTree.ParseError):
            return {}
        found: dict[str, Case] = {}
        for element in root.iter("testcase"):
            name = f"{element.get('classname')}::{element.get('name')}"
            problems = [*element.iter("failure"), *element.iter("error")]
            texts = [problem.text or problem.get("message") or "" for problem in problems]
            printed = [
                part.text or ""
                for kind in ("system-out", "system-err")
                for part in element.iter(kind)
            ]
            failure = "\n".join(texts) if problems else None
            if name in found and failure is None:
                continue  # A test that passed and then failed in its teardown has two entries.
            found[name] = Case(failure, "\n".join(filter(str.strip, printed)))
        return found

    def failed(self, run: int) -> dict[str, Case]:
        """Return the tests that failed in this *run*."""
        return {name: case for name, case in self.cases(run).items() if case.failure is not None}


def steady_failures(first: Mapping[str, Case], second: Mapping[str, Case]) -> list[str]:
    """Return the names of the tests that failed in the *first* run and did not pass in the *second*."""
    return [name for name in first if name not in second or second[name].failure is not None]


def describe(stage: str, name: str, first: Case, second: Case) -> str:
    """Return both outputs of a test that failed and then passed."""
    parts = [
        f"{stage}: {name}",
        "--- failed first:",
        f"{first.failure}\n{first.output}".strip()[-SHOWN:],
        "--- then passed, alone:",
        second.output.strip()[-SHOWN:] or "(it printed nothing)",
    ]
    return "\n".join(parts)
