"""Batches of scripts, which submit and collect them as a user does."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def script(project: Any) -> Any:
    project.copy("batches.py")
    return project


def test_two_batches_at_once_have_classes_methods_and_data_of_their_script(script: Any) -> None:
    for name, text in {"one/a": "1a", "one/b": "1b", "two/b": "2b"}.items():
        script.write(name, text)

    fitted, texts, data = script.json("batches.py", "two_at_once")

    assert fitted == [*([10 * rate + 7, True] for rate in range(4)), 4]
    assert texts == [["1a", "1a"], ["2b", "1b"], ["1b", "1b"]]
    assert data == 2  # Each is stored once, whichever inputs have it.


def test_a_hundred_inputs_run_in_ranges_and_each_value_is_right(script: Any) -> None:
    assert script.json("batches.py", "a_hundred") == [index * index for index in range(100)]


@pytest.mark.parametrize("action", ["manifest.json", "supervisor.log"])
def test_a_submitter_killed_before_an_action_leaves_a_whole_batch_or_none(
    script: Any, tmp_path: Path, action: str
) -> None:
    (tmp_path / "marks").mkdir()

    submitted = script.run("batches.py", "submit_and_die", str(tmp_path / "marks"), action)
    found = script.json("batches.py", "all_results")

    assert submitted.returncode == -signal.SIGKILL
    assert found == ([] if action == "manifest.json" else [list(range(6))])
    assert len(list((tmp_path / "marks").glob("[0-9]"))) == 6 * len(found)


def test_a_batch_whose_submitter_was_killed_is_collected_by_others_while_it_runs_and_after(
    script: Any, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    submitted = script.run("batches.py", "submit_and_die", str(marks))
    assert submitted.returncode == -signal.SIGKILL
    group_id = submitted.stdout.strip()

    early, found = script.json("batches.py", "collect", group_id, str(marks))
    values, counts, line = script.json("batches.py", "results", group_id)

    assert sum(early.values()) == 6
    assert "SUCCEEDED" not in early or early["SUCCEEDED"] <= 3
    assert found == [[index, index] for index in range(6)]
    assert values == list(range(6))
    assert counts == {"NOT_FOUND": 6}
    assert line == f"<BatchHandle {group_id}: count, 6 collected of 6>"
    assert [(marks / str(index)).read_text() for index in range(6)] == ["x"] * 6
