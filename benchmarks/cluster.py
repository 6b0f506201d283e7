"""The Kubernetes backend, on the test bed: a real Kubernetes on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Budget, Figure
from measuring import CLIENTS, Bench, by_name, write_project

from kinetic_servers.gcs import GcsProcess

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / ".ci"), str(ROOT / "tests" / "cluster")]

from bed import Bed, start  # noqa: E402
from images import REQUIREMENTS, image_of  # noqa: E402
from pods import small  # noqa: E402
from testcloud import testcloud  # noqa: E402
from tiers import obstacle  # noqa: E402 - what CI asks as well

FILES = 50
JOBS = 1_000
BUCKETS = ("bench-jobs", "bench-listed")
BARE_REQUESTS = "its requests, by a bare client"
SINCE_START = """
import os, time
now = time.clock_gettime(time.CLOCK_BOOTTIME)
ticks = open("/proc/1/stat").read().rpartition(")")[2].split()[19]
print(now - int(ticks) / os.sysconf("SC_CLK_TCK"))
"""
"""What the function of `clients/cluster.py` does: the time since the container's first process started."""


def left_out() -> str | None:
    """Return why a run that does not name this group leaves it out, or None: the test bed runs."""
    if (why := obstacle()) is not None:
        return why
    folder = testcloud()
    assert folder is not None
    status = subprocess.run([folder / "kube" / "status"], capture_output=True, check=False)
    return (
        None if status.returncode == 0 else "the test bed does not run; name the group to start it"
    )


def figures(bench: Bench) -> Iterator[Figure]:
    if (why := obstacle()) is not None:
        raise SystemExit(f"The group `cluster` cannot be measured: {why}.")
    bed = start()
    image = image_of(bed, bench.folder / "image", REQUIREMENTS)
    project = write_project(bench.folder / "project", FILES)
    arguments = ("--host", bed.environment["KUBE_BED_HOST"], "--no-md5")
    with GcsProcess(*BUCKETS, arguments=arguments) as server:
        with bed.new_namespace() as name:
            here = Cluster(bench, bed, server, image, project, name, BUCKETS[0])
            yield from submitting(here)
            yield from ending(here)
            yield from starting(here)
            yield from waiting(here)
        with bed.new_namespace() as name:
            yield from listing(Cluster(bench, bed, server, image, project, name, BUCKETS[1]))


@dataclass(frozen=True)
class Cluster:
    """A namespace in which jobs of a project run, with a bucket that pods reach."""

    bench: Bench
    bed: Bed
    server: GcsProcess
    image: str
    project: Path
    namespace: str
    bucket: str

    def client(self, action: str, count: int, facts: Mapping[str, Any] | None = None) -> Any:
        """Let `clients/cluster.py` do *action*, with *facts* added to those of the bed."""
        given = {
            "image": self.image,
            "overrides": small(),
            "ca": self.bed.environment["KUBE_BED_CA"],
            **(facts or {}),
        }
        return self.bench.client(
            "cluster",
            CLIENTS,
            json.dumps(given),
            action,
            count,
            project=self.project,
            variables={
                **self.server.environment,
                "KUBECONFIG": self.bed.kubeconfig,
                "KINETIC_BACKEND": "gke",
                "KINETIC_KUBE_CONTEXT": "kube-bed",
                "KINETIC_NAMESPACE": self.namespace,
                "KINETIC_STORE": f"gs://{self.bucket}",
            },
        )

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.bed.kubectl("-n", self.namespace, *arguments, given=given)


def submitting(cluster: Cluster) -> Iterator[Figure]:
    all_found = cluster.client("submit", cluster.bench.rounds(15))
    found = by_name(all_found["rounds"])
    yield Figure(
        what=f"submit to a cluster, {FILES} files unchanged",
        samples=found["submit"],
        floor=BARE_REQUESTS,
        floor_samples=found["floor"],
        budgets=(Budget(0.15),),
    )
    yield _requests("submit to a cluster: requests to the API server", found["to_cluster"], 6)
    yield _requests("submit to a cluster: requests to the bucket", found["to_bucket"], 6)
    for what, name in (
        ("`status()` of a job that waits", "status"),
        ("the reason why it waits, beyond that", "diagnosis"),
    ):
        yield _requests(f"{what}: requests to the API server", [all_found[name]["to_cluster"]], 2)
        yield _requests(f"{what}: requests to the bucket", [all_found[name]["to_bucket"]], 2)


def ending(cluster: Cluster) -> Iterator[Figure]:
    found = by_name(cluster.client("end", cluster.bench.rounds(9))["rounds"])
    yield Figure(
        what="event that a job's container has ended → value",
        samples=found["signal"],
        floor=BARE_REQUESTS,
        floor_samples=found["floor"],
        budgets=(Budget(0.3),),
    )
    yield Figure(
        what="outcome of a cluster's job in the bucket → value",
        samples=found["outcome"],
        floor=BARE_REQUESTS,
        floor_samples=found["floor"],
    )


def starting(cluster: Cluster) -> Iterator[Figure]:
    """Run jobs, and by turns pods that differ from theirs only in the command."""
    starts, floors = [], []
    for number in range(cluster.bench.rounds(9) + 1):
        (found,) = cluster.client("start", 1)["rounds"]
        floor = _bare_start(cluster, found["job"])
        if number:
            starts.append(found["start"])
            floors.append(floor)
    yield Figure(
        what="start of a container → function",
        samples=starts,
        floor="python3 -c in such a container",
        floor_samples=floors,
        budgets=(Budget(1.0, "above"),),
    )


def _bare_start(cluster: Cluster, job: str) -> float:
    spec = json.loads(cluster.kubectl("get", "job", job, "-o", "json"))["spec"]["template"]["spec"]
    spec["containers"][0]["command"] = ["python3", "-c", SINCE_START]
    spec["containers"][0].pop("args", None)
    name = f"{job}-bare"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("create", "-f", "-", given=json.dumps(pod))
    finished = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", finished, f"pod/{name}", "--timeout=120s")
    seconds = float(cluster.kubectl("logs", name))
    cluster.kubectl("delete", "pod", name, "--wait=false")
    return seconds


def waiting(cluster: Cluster) -> Iterator[Figure]:
    seconds = 10 if cluster.bench.quick else 60
    for action, how in (("wait", "`result()`"), ("await", "`await`")):
        found = cluster.client(action, seconds)
        what = f"a minute of waiting with {how} for a job that runs"
        yield Figure(what=f"{what}: requests", samples=[found["requests"]], unit="")
        yield Figure(what=f"{what}: CPU", samples=[found["cpu"]])


def listing(cluster: Cluster) -> Iterator[Figure]:
    jobs = 100 if cluster.bench.quick else JOBS
    facts = {"jobs": jobs, "listed": cluster.client("fill", jobs)}
    found = by_name(cluster.client("list", cluster.bench.rounds(5), facts)["rounds"])
    what = f"list of {jobs:,} jobs of a cluster, with their statuses"
    yield Figure(
        what=what,
        samples=found["listing"],
        floor="one bare list of their Jobs",
        floor_samples=found["floor"],
    )
    yield Figure(what=f"{what}: requests to the API server", samples=found["to_cluster"], unit="")
    yield Figure(what=f"{what}: requests to the bucket", samples=found["to_bucket"], unit="")


def _requests(what: str, counted: list[float], limit: int) -> Figure:
    return Figure(what=what, samples=counted, unit="", budgets=(Budget(limit),))
