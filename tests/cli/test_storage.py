"""`kinetic storage` over a folder store, with real jobs."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from .conftest import KINETIC, Laptop


def stored(laptop: Laptop) -> dict[str, int]:
    """Return how many items of each kind the command shows."""
    rows = json.loads(laptop.kinetic("storage", "--local", "--json").stdout)
    return {row["what"]: row["items"] for row in rows}


def test_ended_jobs_go_and_a_running_job_keeps_what_it_needs(laptop: Laptop) -> None:
    ended, running = laptop.submit("answer", "1"), laptop.submit("wait")
    laptop.kinetic("jobs", "result", "--no-cleanup", ended)
    assert stored(laptop)["job records"] == 2
    table = laptop.kinetic("storage").stdout
    assert table.split("\n")[0].split() == [
        *("WHAT", "ITEMS", "SIZE", "OLDEST", "NEWEST", "DELETED", "AFTER", "PLACE")
    ]

    choice = ("--jobs", "--contexts", "--logs", "--outputs", "--data", "--all-ages")
    refused = laptop.kinetic("storage", "prune", *choice)
    planned = laptop.kinetic("storage", "prune", *choice, "--dry-run", "--json")
    assert (refused.returncode, "no terminal" in refused.stderr) == (1, True)
    assert stored(laptop)["job records"] == 2

    pruned = laptop.kinetic("storage", "prune", *choice, "--yes", "--json")

    removed = {row["what"]: row["items"] for row in json.loads(pruned.stdout)["removed"]}
    assert removed == {"contexts": 0, "data": 0, "logs": 1, "jobs": 1, "outputs": 0}
    assert json.loads(planned.stdout)["removed"] == json.loads(pruned.stdout)["removed"]
    left = stored(laptop)
    assert (left["job records"], left["contexts"], left["job folders"]) == (1, 1, 1)
    assert laptop.kinetic("jobs", "status", ended).returncode == 1
    assert json.loads(laptop.kinetic("jobs", "status", running, "--json").stdout)["status"] in (
        *("PENDING", "RUNNING"),
    )


@pytest.mark.parametrize(("answers", "stays"), [("y\nn\n", True), ("y\ny\n", False)])
def test_outputs_have_a_question_of_their_own(laptop: Laptop, answers: str, stays: bool) -> None:
    output = laptop.home / "store/outputs/cpu-f-20260101-000000-abcdef0/model"
    output.parent.mkdir(parents=True)
    output.write_text("weights")
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())

    ran = subprocess.run(
        [*KINETIC, "storage", "prune", "--outputs", "--all-ages"],
        env=laptop.environment,
        stdin=theirs,
        capture_output=True,
        text=True,
    )

    assert "Nothing makes them again. Remove those of 1 job?" in ran.stderr
    assert ran.returncode == (130 if stays else 0)
    assert output.exists() is stays
    for end in (ours, theirs):
        os.close(end)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["prune"], 2, "Name what to remove"),
        (["prune", "--logs"], 2, "--older-than AGE, or --all-ages"),
        (["prune", "--logs", "--older-than", "1d", "--all-ages"], 2, "Say how old"),
        (["prune", "--logs", "--older-than", "30"], 2, "'30' is not an age"),
        (["prune", "--logs", "--all-ages", "--local", "--cluster"], 2, "exclude each other"),
        (["--json", "prune", "--logs", "--all-ages"], 2, "Write the options after `prune`"),
        (["prune", "--data", "--older-than", "7d"], 1, "less than 14 days"),
        (["prune", "--caches", "--all-ages", "--cluster"], 1, "caches are on this machine"),
        (["prume"], 2, "Did you mean prune?"),
    ],
)
def test_wrong_input_is_refused(laptop: Laptop, args: list[str], code: int, message: str) -> None:
    ran = laptop.kinetic("storage", *args)

    assert message in ran.stderr
    assert ran.returncode == code
