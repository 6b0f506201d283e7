"""A real Kubernetes for these tests, and jobs on it.

`pytest tests/cluster` starts it if it does not run (`.ci/testcloud.py` says where it is found) and lets
it run; the folder `kube` there has `down`. Runs that do not name this folder skip its tests. Where
`KINETIC_TEST_CLUSTER=required`, a missing cluster is a failure.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import secrets
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import connect
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.manifests.pod import PodSpec, Resources

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
REQUIRED = "KINETIC_TEST_CLUSTER"


@dataclass(frozen=True)
class Bed:
    """The test bed, as its `up` describes it."""

    commands: Path
    """The folder with `up`, `down`, `accel` and others."""
    environment: Mapping[str, str]

    @property
    def kubeconfig(self) -> str:
        return self.environment["KUBECONFIG"]

    @property
    def user_kubeconfig(self) -> str:
        """Of a user with few permissions, in the namespace `default` only."""
        return self.environment["KUBE_BED_USER_KUBECONFIG"]

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl: what these tests know independently of our code."""
        done = subprocess.run(
            [self.environment["KUBE_BED_KUBECTL"], *arguments],
            env={**os.environ, **self.environment},  # noqa: TID251 - a child's begins with ours
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, command: str, *arguments: str) -> None:
        """Run one of the bed's own commands."""
        subprocess.run([self.commands / command, *arguments], check=True, capture_output=True)


def missing(config: pytest.Config) -> str | None:
    """Return why there is no cluster for this run, or None."""
    named = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    if not any(path == HERE or HERE in path.parents for path in named):
        return "name tests/cluster to run the tests that need a Kubernetes"
    if _testcloud() is None:
        return "there is no test cloud on this machine (.ci/testcloud.py)"
    if os.geteuid() != 0:
        return "only root can start the test cluster"
    if not Path("/etc/debian_version").is_file():
        return "the test cluster needs Debian"
    return None


def _testcloud() -> Path | None:
    spec = importlib.util.spec_from_file_location("testcloud", ROOT / ".ci" / "testcloud.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Path | None = module.testcloud()
    return found


@pytest.fixture(scope="session")
def bed(pytestconfig: pytest.Config) -> Bed:
    """The running test bed; several processes may ask for it at once."""
    required = os.environ.get(REQUIRED) == "required"  # noqa: TID251 - these tests' own
    if (why := missing(pytestconfig)) is not None:
        pytest.fail(why) if required else pytest.skip(why)
    folder = _testcloud()
    assert folder is not None
    done = subprocess.run([folder / "kube" / "up"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    exports = re.findall(r"^export (\w+)=(.*)$", done.stdout, re.MULTILINE)
    return Bed(folder / "kube", {name: shlex.split(value)[0] for name, value in exports})


@pytest.fixture(scope="session")
def namespace(bed: Bed) -> Iterator[str]:
    """A namespace of this process's own."""
    name = f"kn-test-{secrets.token_hex(3)}"
    bed.kubectl("create", "namespace", name)
    # Pods need it, and it is made a moment after its namespace.
    bed.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s", "-n", name)
    yield name
    bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def cluster(bed: Bed, namespace: str) -> ApiServer:
    """That namespace, as its administrator."""
    return connect(kubeconfig=bed.kubeconfig, namespace=namespace)


_NUMBERS = itertools.count(1)


@pytest.fixture
def a_job() -> Callable[..., JobSpec]:
    """Return what describes a job that runs a Python program; its id and name are its own."""

    def make(program: str, *, retries: int = 0, **pod: Any) -> JobSpec:
        suffix = secrets.token_hex(4)[:7]
        values: dict[str, Any] = {
            "job_id": f"cpu-test{next(_NUMBERS)}-20261122-101500-{suffix}",
            "accelerator": parse_accelerator("cpu"),
            "image": "kinetic.test/python:3.11",
            "command": ("python3", "-u", "-c", program),
            "resources": Resources(cpu="20m", memory="64Mi"),
        }
        return JobSpec(name=f"kn-test-{suffix}", pod=PodSpec(**{**values, **pod}), retries=retries)

    return make


@dataclass(frozen=True)
class Look:
    """What a test sees of a job through kubectl."""

    bed: Bed
    namespace: str

    def pods(self, spec: JobSpec) -> list[Manifest]:
        """Return the pods of a job."""
        asked = ("get", "pods", "-n", self.namespace, "-l", of_job(spec.pod.job_id), "-o", "json")
        found: list[Manifest] = json.loads(self.bed.kubectl(*asked))["items"]
        return found

    def wait(self, spec: JobSpec, condition: str, *, seconds: int = 120) -> None:
        """Wait for a condition of the Job, such as `condition=Complete`."""
        self.bed.kubectl(
            "wait", f"--for={condition}", f"job/{spec.name}", f"--timeout={seconds}s",
            "-n", self.namespace,
        )  # fmt: skip

    def evict(self, pod: str) -> None:
        """Evict a pod, as a preemption would."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        self.bed.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(body))


@pytest.fixture(scope="session")
def look(bed: Bed, namespace: str) -> Look:
    return Look(bed, namespace)
