"""Batches on a real cluster: one Indexed Job, whose pods are evicted while they run inputs."""

from __future__ import annotations

import json
from typing import Any

SCRIPT = """
import os, signal, sys
import kinetic
from gates import gate
from pods import small

@kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small(), retries=1,
    capture_env_vars=["GATE"],
)
def square(x, power=1):
    attempt = int(os.environ["KINETIC_ATTEMPT"])
    print(f"input {x}, attempt {attempt}")
    if x == 1 and attempt == 1:
        gate(os.environ["GATE"])
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if x == 3 and attempt == 1:
        raise ValueError("only the first time")
    return x**power, attempt

if __name__ == "__main__":
"""
BATCH = (
    SCRIPT
    + """
    batch = square.run_async_map(range(6), common={"power": 2}, max_concurrent=3, inputs_per_pod=2)
    print(batch.group_id)
"""
)
COLLECT = """
import json, sys, kinetic
batch = kinetic.attach_batch(sys.argv[1])
values = batch.results(return_exceptions=True, timeout=300)
print(json.dumps([value if isinstance(value, (list, tuple)) else str(value) for value in values]))
print(json.dumps([job.logs() for job in batch.jobs]))
batch.cleanup()
print(json.dumps(batch.status_counts()))
"""


def test_a_batch_gives_each_value_although_a_pod_is_evicted_and_an_input_kills_its_process(
    project: Any, look: Any
) -> None:
    group = project.script(BATCH, GATE="running").split()[-1]
    project.await_gate("running")
    (job,) = project.objects("job", group)
    (pod,) = [
        pod
        for pod in project.objects("pod", group)
        if pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
    ]
    look.evict(pod["metadata"]["name"], grace=2)
    project.pass_gate("running")
    (project.root / "collect.py").write_text(COLLECT)
    done = project.run("collect.py", group)
    assert done.returncode == 0, done.stdout + done.stderr
    values, logs, counts = map(json.loads, done.stdout.splitlines()[-3:])

    assert job["spec"]["completions"] == 3
    assert [values[index] for index in (0, 3, 4, 5)] == [[0, 1], [9, 2], [16, 1], [25, 1]]
    assert values[1] == [1, 2], "the pod was evicted in the first attempt"
    assert "SIGKILL" in values[2]
    assert "input 5, attempt 1" in logs[5]
    assert counts == {"NOT_FOUND": 6}
    assert not project.objects("job,pod", group)
    assert not project.kept(f"groups/{group}")


def test_a_cancelled_batch_stops_its_pods_and_gives_all_values_once_it_is_retried(
    project: Any,
) -> None:
    one = BATCH.replace("range(6)", "[1, 5, 6, 7]").replace("max_concurrent=3", "max_concurrent=1")
    group = project.script(one, GATE="stays").split()[-1]
    project.await_gate("stays")
    kinds, values = project.script(
        f"""
import json, kinetic
batch = kinetic.attach_batch({group!r})
batch.cancel()
print(*(type(error).__name__ for error in batch.results(return_exceptions=True)), flush=True)
batch.retry_failed()
print(json.dumps(batch.results()))
""",
        GATE="stays",
    ).splitlines()

    assert kinds.split() == ["JobCancelledError", *["NotLaunchedError"] * 3]
    assert json.loads(values) == [[1, 2], [25, 1], [36, 1], [49, 1]]
    assert not project.objects("job,pod", group)
