"""Failed tests, run once more: which of them were unsteady, and whether the whole run may pass.

pytest keeps its own account: its cache names the tests that failed (`--last-failed` runs them again),
its JUnit report holds what each of them printed.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_UNSTEADY = 2
"""So many tests may pass only the second time before the run fails all the same."""
MOST_REPEATED = 20
"""Where more tests fail, none is run again: it was not bad luck."""
SHOWN = 10_000
"""Characters of each output of an unsteady test."""


@dataclass(frozen=True)
class Case:
    """One test of one report."""

    failure: str | None
    """Why it failed, or None."""
    output: str
    """What it, and the code it tested, printed."""


@dataclass(frozen=True)
class Records:
    """The files in which pytest notes what happened to the tests of one stage."""

    folder: Path
    name: str

    def report(self, run: int) -> Path:
        """Return the JUnit report of this *run* of the tests: 1, or 2 for those that failed."""
        return self.folder / f"{self.name}-{run}.xml"

    def options(self, run: int) -> list[str]:
        """Return options that make pytest take notes and, in run 2, run only what failed, alone."""
        notes = [
            f"--junitxml={self.report(run)}",
            "--override-ini=junit_logging=all",
            f"--override-ini=cache_dir={self.folder / self.name}-cache",
        ]
        return (
            notes
            if run == 1
            else [*notes, "--last-failed", "--last-failed-no-failures=none", "-n0"]
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
                continue  # It passed, but failed in its teardown, which is an entry of its own.
            found[name] = Case(failure, "\n".join(filter(str.strip, printed)))
        return found

    def failed(self, run: int) -> dict[str, Case]:
        """Return the tests that failed in this *run*."""
        return {name: case for name, case in self.cases(run).items() if case.failure is not None}


def steady_failures(first: Mapping[str, Case], second: Mapping[str, Case]) -> list[str]:
    """Return which of the tests that failed in the *first* run did not pass in the *second*."""
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
