"""The examples for people, run as people run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_servers.gcs import GcsServer

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow  # their jobs import JAX, Keras or scikit-learn


def environment_of_a_user(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KINETIC_")}  # noqa: TID251
    return {**kept, "KINETIC_HOME": str(home)}


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """The examples, in a folder of their own: jobs of this checkout would take all of it along."""
    return shutil.copytree(EXAMPLES, tmp_path / "examples")


def run(
    script: Path, home: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**environment_of_a_user(home), **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_killed_training_resumes_from_its_last_checkpoint_in_a_bucket(
    examples: Path, tmp_path: Path
) -> None:
    with GcsServer() as server:
        server.create_bucket("jobs")
        where = {"KINETIC_STORE": "gs://jobs", "KINETIC_OUTPUT_DIR": "gs://jobs/kept"}
        environment = {**where, **server.environment}
        printed = run(examples / "checkpoints.py", tmp_path / "home", **environment)
        saved = server.names("jobs", "kept/broken/")
    assert "attempt 2 begins at step 30" in printed
    assert saved == ["kept/broken/000050.npz", "kept/broken/000060.npz"]


def test_a_sweep_whose_submitter_is_killed_is_collected_by_another_process(
    examples: Path, tmp_path: Path
) -> None:
    sweep = examples / "sweep.py"
    # Each input imports scikit-learn: four of the twenty show the same, also in two ranges.
    text = re.sub("^PENALTIES = .*", "PENALTIES = (1.0, 10.0)", sweep.read_text(), flags=re.M)
    text = re.sub("^WIDTHS = .*", "WIDTHS = (3e-4, 1e-3)", text, flags=re.M)
    sweep.write_text(text.replace("inputs_per_pod=5", "inputs_per_pod=2"))
    with subprocess.Popen(
        [sys.executable, str(sweep)],
        env=environment_of_a_user(tmp_path / "home"),
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    ) as submitter:
        assert submitter.stdout is not None
        group = submitter.stdout.readline().split()[-1]
        submitter.kill()

    rows = run(sweep, tmp_path / "home", group, cwd=tmp_path).splitlines()[1:-1]

    scores = [float(row.split()[-1]) for row in rows]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.97
    assert (tmp_path / "sweep.svg").read_text().count("<rect") == 4


def test_a_training_on_one_host_is_continued_on_two(examples: Path, tmp_path: Path) -> None:
    training = examples / "digits" / "training.py"
    again = ("--run", "mine", "--output-dir", str(tmp_path / "kept"))
    one = run(training, tmp_path / "home", "--accelerator", "cpu", *again)
    # The newest checkpoint is not complete.
    (tmp_path / "kept" / "mine" / "000060" / "complete").unlink()
    on_two = ("--accelerator", "tpu-v4-8", *again)
    two = run(training, tmp_path / "home", *on_two, KINETIC_BACKEND="local-gke")

    assert "attempt 1 begins after epoch 0" in one
    for host in range(2):
        # JAX writes to the same file, and not always whole lines.
        begins = rf"^\[(2 hosts|host {host})\] .*attempt 1 begins after epoch 50"
        assert re.search(begins, two, re.MULTILINE), two
    assert "began_at=50, devices=8, processes=2" in two


@pytest.mark.parametrize("tutorial", ["keras", "flax", "sweep", "multi-host"])
def test_a_tutorial_prints_its_expected_lines(tutorial: str, tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "docs" / "tutorials" / f"{tutorial}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python runnable\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(code, encoding="utf-8")

    printed = iter(run(project / "train.py", tmp_path / "home", cwd=project).splitlines())

    for expected in re.findall(r"# → (.*)$", code, re.MULTILINE):
        assert expected in printed
