"""The digits example on a real cluster: on one host, on two hosts, and preempted while it trains."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.reading.attempts import PodView

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"


SWEEP = Path(__file__).parents[3] / "examples" / "sweep.py"


def test_a_sweep_whose_submitter_is_killed_is_collected_by_another_process(
    project: Any, image_with_jax: str
) -> None:
    project.variables["IMAGE"] = image_with_jax
    plain, here = '@kinetic.run(accelerator="cpu")', "from pods import small\n\n@kinetic.run("
    image = "container_image=os.environ['IMAGE'], memory='512Mi', pod_overrides=small())"
    text = SWEEP.read_text().replace(plain, f"{here}'cpu', {image}")
    # Each input imports scikit-learn: eight of the twenty show the same.
    text = re.sub("^WIDTHS = .*", "WIDTHS = (3e-4, 1e-3)", text, flags=re.M)
    (project.root / "sweep.py").write_text(text)
    submitter = project.start("sweep.py")
    group = submitter.stdout.readline().split()[-1]
    submitter.kill()
    submitter.communicate()

    done = project.run("sweep.py", group)

    assert done.returncode == 0, done.stdout + done.stderr
    scores = [float(row.split()[-1]) for row in done.stdout.splitlines()[1:-1]]
    assert len(scores) == 8
    assert scores[0] == max(scores) > 0.97
    # If the submitter was killed while it collected, the batch is kept.
    project.kinetic("batches", "cleanup", group)
    assert not project.objects("job,pod", group)


@pytest.fixture
def digits(project: Any, image_with_jax: str) -> Any:
    """A project with the files of the example."""
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, project.root)
    project.variables["IMAGE"] = image_with_jax
    return project


def test_two_hosts_that_are_preempted_resume_together_from_their_last_complete_checkpoint(
    on_slice: Any, digits: Any, look: Any, copy_project: Any
) -> None:
    copy_project("preempted", digits.root)
    process = digits.start("main.py")
    job_id = process.stdout.readline().strip()
    digits.await_gate("torn")
    torn = digits.bucket.names("jobs", f"outputs/{job_id}/broken/000012/")
    # The other host waits in a collective for the leader, and gets no time to report.
    (other,) = (pod for pod in digits.objects("pod", job_id) if PodView(pod).host == 1)
    look.evict(other["metadata"]["name"], grace=2)
    out, err = process.communicate()

    assert process.returncode == 0, out + err
    broken, whole, losses, (first, second) = json.loads(out.splitlines()[-1])
    assert [name.rpartition("/")[2] for name in torn] == ["b1.npy", "b2.npy", "w1.npy", "w2.npy"]
    assert (broken["attempt"], broken["began_at"], whole["began_at"]) == (2, 8, 0)
    assert (broken["loss"], broken["accuracy"]) == (whole["loss"], whole["accuracy"])
    assert (whole["processes"], whole["devices"]) == (2, 2)
    assert losses[0] == losses[1]
    assert whole["accuracy"] > 0.9
    assert {reason for reason, *_ in first} <= {"terminated"}
    assert [(reason, devices) for reason, devices, _ in second] == [("returned", "cpu:1")] * 2
    assert all(memory > 100 << 20 for *_, memory in second)
