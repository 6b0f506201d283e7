"""The digits example on a real cluster: on one host, on two hosts, and preempted while it trains."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"


@pytest.fixture
def digits(project: Any, image_with_jax: str) -> Any:
    """A project with the files of the example."""
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, project.root)
    project.variables["IMAGE"] = image_with_jax
    return project


def test_the_example_trains_on_one_host(digits: Any) -> None:
    image, place = digits.variables["IMAGE"], "gs://jobs/one-host"
    done = digits.run(
        *("training.py", "--accelerator", "cpu", "--image", image, "--cpu", "700m"),
        *("--memory", "700Mi", "--output-dir", place, "--run", "mine"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    *log, value = done.stdout.splitlines()
    found = eval(value, {"Trained": dict})
    assert found["accuracy"] > 0.95
    assert (found["attempt"], found["began_at"], found["processes"]) == (1, 0, 1)
    assert log[0] == "attempt 1 begins after epoch 0"
    saved = digits.bucket.names("jobs", "one-host/mine/")
    assert [name for name in saved if name.endswith("complete")] == [
        f"one-host/mine/{epoch:06d}/complete" for epoch in range(10, 61, 10)
    ]


def test_two_hosts_train_the_same_model_together(on_slice: Any, digits: Any) -> None:
    shown = digits.script(
        """
        import os, json
        import kinetic, training
        from pods import small

        @kinetic.run(
            os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="700Mi",
            capture_env_vars=["JAX_*"], pod_overrides=small(),
        )
        def function():
            import numpy as np
            from jax.experimental.multihost_utils import process_allgather

            trained = training.train(epochs=20)
            return vars(trained), process_allgather(np.float32(trained.loss)).tolist()

        if __name__ == "__main__":
            job = function.run_async()
            print(json.dumps([*job.result(cleanup=False), job.job_id]))
        """
    )

    found, losses, job_id = json.loads(shown.splitlines()[-1])
    assert found["accuracy"] > 0.9
    assert (found["processes"], found["devices"], found["began_at"]) == (2, 2, 0)
    assert losses[0] == losses[1] < 0.2
    for host in range(2):
        name = f"{job_id}/attempts/1/host-{host}.json"
        outcome = json.loads(digits.bucket.read("jobs", name))
        assert (outcome["devices_seen"], outcome["succeeded"]) == ("cpu:1", True)
        assert outcome["peak_memory"] > 100 << 20


def test_a_preempted_training_resumes_from_its_last_complete_checkpoint(
    digits: Any, look: Any, copy_project: Any
) -> None:
    copy_project("preempted", digits.root)
    process = digits.start("main.py")
    job_id = process.stdout.readline().strip()
    digits.await_gate("torn")
    torn = digits.bucket.names("jobs", f"outputs/{job_id}/broken/000030/")
    (pod,) = digits.objects("pod", job_id)
    look.evict(pod["metadata"]["name"])
    out, err = process.communicate()

    assert process.returncode == 0, out + err
    broken, whole, reasons = json.loads(out.splitlines()[-1])
    assert [name.rpartition("/")[2] for name in torn] == ["b1.npy", "b2.npy", "w1.npy", "w2.npy"]
    assert (broken["attempt"], broken["began_at"], whole["began_at"]) == (2, 20, 0)
    assert (broken["loss"], broken["accuracy"]) == (whole["loss"], whole["accuracy"])
    assert whole["accuracy"] > 0.95
    assert reasons[0] == "terminated"
