"""What a job's processes use over time, as its user sees it."""

from __future__ import annotations

import json
from typing import Any

from kinetic_cli.commands.jobs.top import rows
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.usage import Chip, Sample, Usage

WORK = """
import kinetic, threading

@kinetic.run(accelerator="cpu")
def work():
    kept = bytearray(300_000_000)
    threading.Event().wait(11)

def nothing():
    pass

job = work.run_async()
job.result(cleanup=False)
short = kinetic.run(accelerator="cpu")(nothing).run_async()
short.result(cleanup=False)
print(job.job_id, short.job_id)
"""


def test_jobs_top_shows_processors_and_memory_of_a_job_that_has_ended(project: Any) -> None:
    job, short = project.script(WORK).split()

    shown = project.cli("jobs", "top", job)
    document = json.loads(project.cli("jobs", "top", job, "--json").stdout)
    none = project.cli("jobs", "top", short)
    wrong = project.cli("jobs", "top", job, "--attempt", "2")

    memory = max(sample["memory"] for sample in document["hosts"]["0"]["samples"])
    assert 300_000_000 < memory < 900_000_000
    row = next(line for line in shown.stdout.splitlines() if "memory" in line)
    assert set(row) & set("▃▄▅▆▇█")
    assert "ten seconds" in none.stderr
    assert "has no attempt 2" in wrong.stderr
    assert wrong.returncode == 1

    stored = project.home / "store" / JobObjects(job).usage(1, 0)
    for old, new in (('"cpus": ', '"cpus": -'), ('"memory": ', '"memory": -'), ("{", "")):
        whole = stored.read_text()
        stored.write_text(whole.replace(old, new))
        forged = project.cli("jobs", "top", job)
        assert forged.returncode == 1
        assert forged.stderr.startswith(f"Error: logs/{job}/1/host-0.usage is not a valid Usage:")
        stored.write_text(whole)


def test_chips_that_are_known_only_after_some_samples_are_shown() -> None:
    chips = (Chip(busy=0.5, memory=8, memory_total=16),)
    samples = (Sample(at=1, cpu=0, memory=0), Sample(at=2, cpu=0, memory=0, chips=chips))
    shown = {row[1]: row[2:] for row in rows(0, Usage(cpus=1, samples=samples))}

    assert shown["chip 0"] == ("▁▅", "50%", "50%", "100%")
    assert shown["chip 0 memory"] == ("▁▅", "8 B", "8 B", "16 B")
