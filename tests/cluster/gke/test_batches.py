"""Batches on a real cluster, whose pods are evicted while they run inputs."""

from __future__ import annotations

import json
import random
from typing import Any

from standins import WORKERS, share_the_node_pool

from kinetic.waiting import sleep
from kinetic_k8s.reading.attempts import PodView

SCRIPT = """
import os, signal, sys, time
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
    if x == 4:
        b"x" * (1 << 30)
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
print("attached", flush=True)
values = batch.results(return_exceptions=True, timeout=300)
print(json.dumps([value if isinstance(value, (list, tuple)) else str(value) for value in values]))
print(json.dumps([job.logs(attempt="all") for job in batch.jobs]))
batch.cleanup()
print(json.dumps(batch.status_counts()))
"""


def test_a_batch_gives_each_value_although_a_pod_is_evicted_and_inputs_kill_their_processes(
    project: Any, look: Any, wait_for: Any
) -> None:
    def first_worker() -> list[str]:
        index = "batch.kubernetes.io/job-completion-index"
        pods = [pod["metadata"] for pod in project.objects("pod", group)]
        return [about["name"] for about in pods if about["annotations"][index] == "0"]

    group = project.script(BATCH, GATE="running").split()[-1]
    project.await_gate("running")
    (job,) = project.objects("job", group)
    (evicted,) = first_worker()
    look.evict(evicted, grace=2)
    wait_for(
        lambda: set(first_worker()) - {evicted}
    )  # Until then, it could still return its value.
    project.pass_gate("running")
    (project.root / "collect.py").write_text(COLLECT)
    done = project.run("collect.py", group)
    assert done.returncode == 0, done.stdout + done.stderr
    values, logs, counts = map(json.loads, done.stdout.splitlines()[-3:])

    assert job["spec"]["completions"] == 3
    assert [values[index] for index in (0, 3, 5)] == [[0, 1], [9, 2], [25, 1]]
    assert values[1] == [1, 2], "the pod was evicted in the first attempt"
    assert "SIGKILL" in values[2]
    assert "memory" in values[4]
    assert "input 5, attempt 1" in logs[5]
    assert counts == {"NOT_FOUND": 6}
    assert not project.objects("job,pod", group)
    assert not project.kept(f"groups/{group}")


TEN = (
    SCRIPT.replace("x == ", "x == -").replace(
        "print(f", 'gate(os.environ["GATE"])\n    time.sleep(6)\n    print(f'
    )
    + """
    batch = square.run_async_map(range(10), common={"power": 2}, max_concurrent=5, inputs_per_pod=2)
    print(batch.group_id)
"""
)


def test_pods_evicted_at_random_and_an_api_server_that_restarts_lose_and_repeat_no_value(
    project: Any, relay: Any, look: Any
) -> None:
    def ended() -> set[int]:
        names = project.bucket.names("jobs", f"groups/{group}/jobs/")
        return {int(name.split("/")[3]) for name in names if name.endswith("/outcome.json")}

    project.variables["KUBECONFIG"] = relay.kubeconfig(project.root.parent)
    group = project.script(TEN, GATE="collected").split()[-1]
    (project.root / "collect.py").write_text(COLLECT)
    collecting = project.start("collect.py", group)
    assert collecting.stdout.readline() == "attached\n"
    project.pass_gate("collected")
    rng, evicted, safe = random.Random(33), set[int](), set[int]()
    while len(evicted) < 4 and collecting.poll() is None:
        sleep(rng.uniform(0, 1))
        pods = [PodView(pod) for pod in project.objects("pod", group)]
        running = [pod for pod in pods if pod.phase == "Running" and pod.host not in evicted]
        if not running:
            continue
        pod = rng.choice(running)
        done = ended()
        look.evict(pod.name, grace=rng.choice((2, None)))
        evicted.add(pod.host)
        safe |= done & {2 * pod.host, 2 * pod.host + 1}
        if len(evicted) == 2:
            relay.fail("/", 503, "It restarts.", times=20)
            relay.cut()
    out, err = collecting.communicate()
    assert collecting.returncode == 0, out + err
    values, logs, _ = map(json.loads, out.splitlines()[-3:])

    assert [value[0] for value in values] == [x * x for x in range(10)]
    assert len(evicted) >= 2
    assert [logs[x].count(f"input {x}, attempt") for x in safe] == [1] * len(safe)


SLICES = """
import os, signal, time
import kinetic
from gates import gate
from pods import small

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small(), retries=1,
    backend="gke", capture_env_vars=["JAX_*"],
)
def add(x):
    host, attempt = os.environ["KINETIC_HOST_INDEX"], int(os.environ["KINETIC_ATTEMPT"])
    print(f"input {x}, attempt {attempt}, host {host}", flush=True)
    if x == 0 and attempt == 1:
        gate(f"batch-{host}")
    if x == 1 and attempt == 1:
        if host == "0":
            time.sleep(3600)
        raise ValueError("only the first time")
    if x == 3 and host == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return x + 10, attempt, host

if __name__ == "__main__":
    print(add.run_async_map(range(5), max_concurrent=2).group_id)
"""


def test_each_input_runs_on_all_hosts_of_a_slice_which_goes_on_after_failures_and_an_eviction(
    on_slice: Any, relay: Any, look: Any
) -> None:
    project = on_slice
    project.variables["KUBECONFIG"] = relay.kubeconfig(project.root.parent)
    relay.change = share_the_node_pool

    group = project.script(SLICES).split()[-1]
    for host in (0, 1):
        project.await_gate(f"batch-{host}")
    workloads = project.objects("jobset", group)
    pods = [PodView(pod) for pod in project.objects("pod", group)]
    (one,) = (pod for pod in pods if "-0-worker-0-1-" in pod.name)
    look.evict(one.name, grace=2)
    (project.root / "collect.py").write_text(COLLECT)
    done = project.run("collect.py", group)
    assert done.returncode == 0, done.stdout + done.stderr
    values, logs, counts = map(json.loads, done.stdout.splitlines()[-3:])

    assert len(workloads) == 2, "one for each worker"
    assert values[:3] == [[10, 2, "0"], [11, 2, "0"], [12, 1, "0"]]
    assert "SIGKILL" in values[3]
    assert values[4] == [14, 1, "0"]
    assert all(f"input 4, attempt 1, host {host}" in logs[4] for host in (0, 1))
    assert counts == {"NOT_FOUND": 5}
    assert not project.objects("jobset,job,pod,secret", group)
    assert not project.kept(f"groups/{group}")


def test_under_pathways_a_head_runs_one_input_after_another_with_the_same_workers(
    on_slice: Any, components: dict[str, str], relay: Any
) -> None:
    project = on_slice
    project.variables |= {**components, "KINETIC_BACKEND": ""}
    project.variables["KUBECONFIG"] = relay.kubeconfig(project.root.parent)
    del project.variables["JAX_PLATFORMS"]
    (project.root / "workers.py").write_text(WORKERS)
    relay.change = share_the_node_pool

    out = project.script(
        """
import json, os
import kinetic
from pods import small
from workers import workers

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small(),
)
def function(x):
    return x, workers(), os.environ["KINETIC_PATHWAYS"], os.environ["HOSTNAME"]

if __name__ == "__main__":
    batch = function.run_async_map(range(2), max_concurrent=1)
    print(json.dumps(batch.results(timeout=300)))
"""
    )
    values = json.loads(out.splitlines()[-1])

    tag = components["KINETIC_PATHWAYS_SERVER_IMAGE"].rpartition(":")[2]
    assert [value[:3] for value in values] == [[0, "2", tag], [1, "2", tag]]
    assert values[0][3] == values[1][3], "the same pod"
