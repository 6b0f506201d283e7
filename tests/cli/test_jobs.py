"""`kinetic jobs …` over real detached jobs that another process submitted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import IO

import pytest

from .conftest import Laptop


def test_a_job_is_followed_collected_and_removed(laptop: Laptop) -> None:
    job = laptop.submit("answer", "42")

    followed = laptop.kinetic("jobs", "logs", "--follow", job)
    listed = json.loads(laptop.kinetic("jobs", "list", "--json").stdout)
    tail = laptop.kinetic("jobs", "logs", "-n", "1", job)
    result = laptop.kinetic("jobs", "result", job, "--json", "--no-cleanup")
    status = json.loads(laptop.kinetic("jobs", "status", job, "--json").stdout)

    assert followed.stdout == "[info] working\n"
    assert [(each["job_id"], each["function"]) for each in listed] == [(job, "answer")]
    assert tail.stdout == "[info] working\n"
    assert (result.returncode, json.loads(result.stdout)["value"]) == (0, {"answer": 42})
    assert (status["status"], status["hosts"][0]["reason"]) == ("SUCCEEDED", "returned")

    cleaned = laptop.kinetic("jobs", "cleanup", job)

    assert cleaned.returncode == 0, cleaned.stderr
    assert json.loads(laptop.kinetic("jobs", "list", "--json").stdout) == []
    assert laptop.kinetic("jobs", "status", job).returncode == 1


def test_an_exception_of_the_function_is_printed_with_its_own_traceback_only(
    laptop: Laptop,
) -> None:
    job = laptop.submit("fail")

    ran = laptop.kinetic("jobs", "result", job)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert "Error: LookupError: [/path] is gone" in ran.stderr
    assert "main.py" in ran.stderr
    assert "kinetic_cli" not in ran.stderr
    assert "FAILED" in laptop.kinetic("jobs", "list").stdout


def test_ctrl_c_does_not_stop_a_job_and_cancel_does(laptop: Laptop) -> None:
    job = laptop.submit("wait")
    following = laptop.start("jobs", "logs", "-f", job)
    assert following.stdout is not None
    assert following.stdout.readline() == "waiting\n"

    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=300)

    assert (following.returncode, job in errors) == (130, True)
    timed_out = laptop.kinetic("jobs", "result", job, "--timeout", "0.1")
    assert (timed_out.returncode, "Traceback" in timed_out.stderr) == (1, False)
    running = laptop.kinetic("jobs", "status", job).stdout
    assert re.search(r"status +RUNNING\n(.*\n)*waited +[\dms. ]+s\nphases +running .+s…\n", running)

    cancelled = laptop.kinetic("jobs", "cancel", job)

    assert (cancelled.returncode, cancelled.stdout) == (0, f"Cancelled {job}.\n")
    assert "cancelled" in laptop.kinetic("jobs", "result", job).stderr
    assert "CANCELLED" in laptop.kinetic("jobs", "list").stdout
    [listed] = json.loads(laptop.kinetic("jobs", "list", "--json").stdout)
    assert (listed["status"], listed["cancelled"]) == ("FAILED", True)
    status = laptop.kinetic("jobs", "status", job).stdout
    facts = dict(line.split(maxsplit=1) for line in status.partition("\n\n")[0].splitlines())
    assert facts["why"].startswith("The job was cancelled by ")
    assert "SIGTERM" not in status
    assert not facts.keys() & {"project", "cluster", "zone", "namespace"}
    assert facts["outputs"] == f"{laptop.home}/store/outputs/{job}"
    assert "call " in facts["phases"]


def test_a_batch_and_its_members_are_found_by_their_ids(laptop: Laptop) -> None:
    group = laptop.submit("batch", "0", "1", "2", "3")

    results = laptop.kinetic("batches", "results", group)
    status = json.loads(laptop.kinetic("batches", "status", group, "--json").stdout)
    members = {int(each["job_id"][-1]): each["job_id"] for each in status["slowest"]}

    assert (results.returncode, results.stdout) == (1, "0  0\n2  2\n")
    assert "2 of 4 inputs" in results.stderr
    assert status["failures"] == [{"type": "ValueError", "message": "odd", "inputs": [1, 3]}]
    assert laptop.kinetic("jobs", "logs", members[2]).stdout == "got 2\n"
    assert laptop.kinetic("jobs", "status", members[2]).stdout.split()[1] == "SUCCEEDED"
    [_, row] = laptop.kinetic("jobs", "list").stdout.splitlines()
    assert row.split()[:2] == [group, "FAILED"]
    member = laptop.kinetic("jobs", "result", members[2])
    assert (member.stdout, "is kept" in member.stderr) == ("2\n", True)
    # The batch still has the value; its logs outlast a clean-up of the member.
    assert laptop.kinetic("batches", "results", group).stdout == results.stdout
    assert laptop.kinetic("jobs", "cleanup", members[0]).returncode == 0
    assert laptop.kinetic("jobs", "logs", members[0]).stdout == "got 0\n"

    assert laptop.kinetic("batches", "cleanup", group).returncode == 0
    assert laptop.kinetic("batches", "list").stderr == "No batches.\n"
    assert laptop.kinetic("jobs", "logs", members[2]).stdout == "got 2\n"


def test_jobs_are_selected_shortened_reported_and_cleaned_up_together(laptop: Laptop) -> None:
    first, failed = laptop.submit("answer", "1"), laptop.submit("fail")
    waiting = laptop.submit("wait")
    for job in (first, failed):
        laptop.kinetic("jobs", "logs", "-f", job)

    def listed(*options: str) -> list[str]:
        ran = laptop.kinetic("jobs", "list", "--json", *options)
        return [job["job_id"] for job in json.loads(ran.stdout)]

    assert listed("--limit", "2") == [waiting, failed]
    assert listed("--status", "failed", "--status", "succeeded") == [failed, first]
    assert listed("--function", "answer", "--since", "2h") == [first]
    assert listed("--since", "2099-01-01") == []
    refused = laptop.kinetic("jobs", "list", "--status", "done")
    assert (refused.returncode, "'succeeded'" in refused.stderr) == (2, True)
    laptop.environment["NO_COLOR"] = "1"
    rows = laptop.in_terminal("jobs", "list", columns=60).splitlines()
    assert len(rows) == 4
    assert max(map(len, rows)) <= 60
    assert all(job[-7:] in "".join(rows) for job in (first, failed, waiting))

    assert first in laptop.kinetic("jobs", "status", first[-7:]).stdout
    ambiguous = laptop.kinetic("jobs", "cancel", "cpu-")
    assert (ambiguous.returncode, waiting in ambiguous.stderr) == (1, True)
    assert "no job whose id" in laptop.kinetic("jobs", "status", "gpu").stderr

    unasked = laptop.kinetic("jobs", "cleanup", "--finished")
    assert (unasked.returncode, "remove 2 jobs" in unasked.stderr) == (1, True)
    young = laptop.kinetic("jobs", "cleanup", "--finished", "--older-than", "7d", "--yes")
    assert "No job ended so long ago." in young.stderr
    assert laptop.kinetic("jobs", "cleanup", "--finished", "--yes").returncode == 0
    assert "no job whose id" in laptop.kinetic("jobs", "cleanup", "").stderr  # "$UNSET"
    assert listed() == [waiting]
    assert listed("--all") == [waiting, failed, first]
    several = laptop.kinetic("jobs", "cleanup", first, waiting)
    assert (several.returncode, f"Cleaned up {waiting}" in several.stdout) == (1, True)
    assert f"1 of 2 jobs were not cleaned up:\n  {first}: There is no job" in several.stderr

    assert "is gone" in laptop.kinetic("jobs", "logs", "cpu-fail").stderr
    report = laptop.kinetic("jobs", "report", failed).stdout
    assert report.startswith(f"{failed}: FAILED\nLookupError: [/path] is gone\n")
    assert 'raise LookupError("[/path] is gone")' in report
    assert "It was cleaned up" in report


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_job_whose_value_was_printed_in_part_is_kept(laptop: Laptop, unbuffered: str) -> None:
    laptop.environment["PYTHONUNBUFFERED"] = unbuffered
    job = laptop.submit("much", "500000")

    def printing(stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        process = laptop.start("jobs", "result", job, stdout=stdout)
        if process.stdout is not None:
            assert process.stdout.read(1) == "["  # No pipe holds the rest.
        return process

    with open("/dev/full", "w") as full:
        disk_is_full = printing(stdout=full)
    reader_stops = printing()
    assert reader_stops.stdout is not None
    reader_stops.stdout.close()
    reader_stops.stdout = None
    ctrl_c = printing()
    ctrl_c.send_signal(signal.SIGINT)
    for process, code in ((disk_is_full, 1), (reader_stops, 0), (ctrl_c, 130)):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == code
        assert f"{job} is kept" in errors

    if unbuffered:
        whole = laptop.kinetic("jobs", "result", job)
        assert (whole.returncode, len(whole.stdout)) == (0, 5000 * 103 + 1)
    else:
        whole = laptop.kinetic("jobs", "result", job, "--output", "value.json")
        assert (whole.returncode, whole.stdout) == (0, "")
        value = json.loads((laptop.project / "value.json").read_text())
        assert value == ["x" * 99] * 5000
    assert f"Removed {job}." in whole.stderr
    assert laptop.kinetic("jobs", "result", job).returncode == 1
