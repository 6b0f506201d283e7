"""The test bed: a real Kubernetes on this machine. Benchmarks use it as well; they import this file by its path."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from locks import locked
from testcloud import testcloud
from urllib3.exceptions import HTTPError

from kinetic.waiting import sleep
from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.manifests import Manifest

ADMINISTRATOR: Final = "kube-bed-admin"
FOLDER: Final = Path(os.environ.get("KUBE_BED_DIR", "/var/tmp/kube-bed"))  # noqa: TID251 - the bed's own
"""The folder of the cluster with a node, if it runs; in any case its programs are unpacked there."""
PODS: Final = Path("/sys/fs/cgroup/cpu/kube-bed")
"""The cgroup of all pods."""
SHARES_OF_PODS: Final = 16384
"""Its weight. By default it has that of a single process: beside a busy test run, pods would hardly run at all."""
BRIDGE: Final = Path("/sys/class/net/kn-br0")
"""The network interface that connects the pods."""
ADDRESS_OF_BRIDGE: Final = "02:00:0a:de:00:01"
API_OF: Final = {
    "configmap": "api/v1",
    "event": "api/v1",
    "job": "apis/batch/v1",
    "jobset": "apis/jobset.x-k8s.io/v1alpha2",
    "leaderworkerset": "apis/leaderworkerset.x-k8s.io/v1",
    "limitrange": "api/v1",
    "pod": "api/v1",
    "resourcequota": "api/v1",
    "role": "apis/rbac.authorization.k8s.io/v1",
    "rolebinding": "apis/rbac.authorization.k8s.io/v1",
    "secret": "api/v1",
    "service": "api/v1",
}
"""Where the API server serves the objects that tests look for."""


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
    def folder(self) -> Path:
        """The folder of what runs: it is new whenever the bed is."""
        return Path(self.environment["KUBE_BED_DIR"])

    def access(self, namespace: str, *, token: str = ADMINISTRATOR) -> Access:
        """Return how the cluster is reached as its administrator.

        As `kube-bed-user` a few things are permitted in the namespace `default` only.
        """
        return Access(
            server=self.environment["KUBE_BED_SERVER"],
            ca=Path(self.environment["KUBE_BED_CA"]).read_text(),
            namespace=namespace,
            credentials=lambda: Credentials(headers={"Authorization": f"Bearer {token}"}),
        )

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl: what these tests know independently of our code."""
        return _output_of(
            self.environment["KUBE_BED_KUBECTL"], *arguments, more=self.environment, given=given
        )

    def ask(self, method: str, path: str, *, body: object = None, **query: str) -> Any:
        """Send a request to the API server; return the response, decoded.

        This is for what tests ask again and again: each time, kubectl would take 0.1 s of a core.
        """
        return json.loads(self._response(method, path, body, **query))

    def path_of(self, kind: str, namespace: str, name: str = "") -> str:
        """Return the path of an object, or of all of a kind in a namespace."""
        path = f"{API_OF[kind]}/namespaces/{namespace}/{kind}s"
        return f"{path}/{name}" if name else path

    def until(self, path: str, condition: str, *, seconds: float = 240) -> Manifest:
        """Wait until an object has the *condition*; return the object."""
        deadline = time.monotonic() + seconds
        while True:
            found: Manifest = self.ask("GET", path)
            conditions = found.get("status", {}).get("conditions") or ()
            if any(one["type"] == condition and one["status"] == "True" for one in conditions):
                return found
            assert time.monotonic() < deadline, f"{path} did not become {condition}"
            sleep(0.25)

    def log_of(self, pod: Manifest) -> str:
        """Return the log of a pod's main container, as far as it is there."""
        about = pod["metadata"]
        first = pod["spec"]["containers"][0]["name"]
        main = about.get("annotations", {}).get("kubectl.kubernetes.io/default-container", first)
        path = f"api/v1/namespaces/{about['namespace']}/pods/{about['name']}/log"
        return self._response("GET", path, container=main).decode()

    def _response(self, method: str, path: str, body: object = None, **query: str) -> bytes:
        url = f"{self.environment['KUBE_BED_SERVER']}/{path}?{urlencode(query)}"
        response = self._http.request(method, url, json=body)
        assert response.status < 300, response.data
        return response.data

    def objects(self, kinds: str, namespace: str, labels: str = "") -> list[Manifest]:
        """Return the objects of *kinds*, such as `job,pod`, independently of our code."""
        return [
            found
            for kind in kinds.split(",")
            for found in self.ask("GET", self.path_of(kind, namespace), labelSelector=labels)[
                "items"
            ]
        ]

    @cached_property
    def _http(self) -> urllib3.PoolManager:
        headers = {"Authorization": f"Bearer {ADMINISTRATOR}"}
        return urllib3.PoolManager(ca_certs=self.environment["KUBE_BED_CA"], headers=headers)

    @contextmanager
    def new_namespace(self) -> Iterator[str]:
        """Provide a namespace; it is deleted with everything in it."""
        name = f"kn-test-{secrets.token_hex(3)}"
        path = "api/v1/namespaces"
        self.ask("POST", path, body={"metadata": {"name": name}})
        try:
            # Pods need this account, which is made a moment after its namespace.
            while not self.ask("GET", f"{path}/{name}/serviceaccounts")["items"]:
                sleep(0.1)
            yield name
        finally:
            self.ask("DELETE", f"{path}/{name}")

    @contextmanager
    def new_slice(self, hosts: int) -> Iterator[str]:
        """Provide an accelerator with two or four hosts. All fit on the one node, beside those of others like it."""
        topology = {2: "2x2x2", 4: "2x2x4"}[hosts]
        wanted = {"cloud.google.com/gke-tpu-topology": topology}
        with locked(self.folder, "slices"):
            nodes = self.ask("GET", "api/v1/nodes")["items"]
            if not any(
                one["status"]["capacity"].get("google.com/tpu") == "64"
                and wanted.items() <= one["metadata"]["labels"].items()
                for one in nodes
            ):
                self.run(
                    "accel", "tpu", "--chips", "64", "--type", "tpu-v5p-slice",
                    "--topology", topology, "--nodepool", "np1",
                )  # fmt: skip
        yield f"v5p-{4 * hosts}"

    @contextmanager
    def new_priority(self) -> Iterator[str]:
        """Provide a priority that no other has: a JobSet keeps only others of its priority from its node pool."""
        # JobSet makes the priority a label. A negative one is not a valid label: its pods would never be created.
        number = 1000 + secrets.randbelow(10**6)
        name = f"kn-test-{number}"
        path = "apis/scheduling.k8s.io/v1/priorityclasses"
        metadata = {"name": name}
        body = {"metadata": metadata, "value": number, "preemptionPolicy": "Never"}
        self.ask("POST", path, body=body)
        try:
            yield name
        finally:
            self.ask("DELETE", f"{path}/{name}")

    def evict(self, namespace: str, pod: str, *, grace: int | None = None) -> None:
        """Evict a pod, as a preemption would; *grace*: the seconds that it gets to end, if not its own."""
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        if grace is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace}
        self.ask("POST", f"api/v1/namespaces/{namespace}/pods/{pod}/eviction", body=body)

    def run(self, command: str, *arguments: str) -> None:
        """Run one of the bed's own commands."""
        _output_of(self.commands / command, *arguments)


def start() -> Bed:
    """Start the test bed unless it runs; it keeps running afterwards."""
    folder = testcloud()
    assert folder is not None, "ask `obstacle` first"
    with _starting():
        bed = _bed_of(folder / "kube", _output_of(folder / "kube" / "up"))
    for shares in PODS.glob("cpu.shares"):
        shares.write_text(str(SHARES_OF_PODS))
    _keep_address(BRIDGE)
    _define_classes(bed)
    return bed


@contextmanager
def control_plane(name: str) -> Iterator[Bed]:
    """Share a cluster without a node with other processes that run tests; the last one removes it.

    It has the objects of JobSet, but not its controller.
    """
    found = testcloud()
    assert found is not None, "ask `obstacle` first"
    folder = Path(tempfile.gettempdir()) / f"kn-{name}"
    folder.mkdir(exist_ok=True)
    kube, place = found / "kube", ("--dir", str(folder / "k"))
    with locked(folder, "use", shared=True):
        with _starting():
            bed = _plane_in(folder, kube, place)
        yield bed
    with locked(folder, "use", wait=False) as alone:
        if alone:
            (folder / "exports").unlink(missing_ok=True)
            _output_of(kube / "down", "--purge", *place)


def _starting() -> AbstractContextManager[bool]:
    """Let one process at a time start a cluster: they look for free ports."""
    return locked(Path(tempfile.gettempdir()), "kn-starting")


def _plane_in(folder: Path, kube: Path, place: tuple[str, str]) -> Bed:
    kept = folder / "exports"
    if kept.exists():
        bed = _bed_of(kube, kept.read_text())
        with suppress(HTTPError):  # Those who started it were killed.
            bed.ask("GET", "version")
            return bed
    # What a killed run has left: its ports may be taken.
    _output_of(kube / "down", "--purge", *place)
    programs, own = FOLDER / "bin", folder / "k" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    own.parent.mkdir(exist_ok=True)
    own.symlink_to(programs)  # To unpack them once more takes 300 MB and some seconds of a core.
    exports = _output_of(kube / "up", "--no-node", *place)
    bed = _bed_of(kube, exports)
    send(bed.folder, "jobset", signal.SIGTERM)
    _define_classes(bed)
    kept.write_text(exports)
    return bed


def _bed_of(kube: Path, exports: str) -> Bed:
    found = re.findall(r"^export (\w+)=(.*)$", exports, re.MULTILINE)
    return Bed(kube, {name: shlex.split(value)[0] for name, value in found})


def _define_classes(bed: Bed) -> None:
    """Define ComputeClasses, as every cluster on GKE does."""
    if all(group["name"] != "cloud.google.com" for group in bed.ask("GET", "apis")["groups"]):
        classes = bed.commands / "manifests" / "computeclasses.yaml"
        bed.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(classes))


def _output_of(
    *command: str | Path, more: Mapping[str, str] | None = None, given: str | None = None
) -> str:
    """Run a command with the variables *more* and the input *given*; it must succeed."""
    # With GOGC, what the bed starts, all of it in Go, collects garbage less often.
    environment = {**os.environ, "GOGC": "400", **(more or {})}  # noqa: TID251 - a child's begins with ours
    done = subprocess.run(
        command,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _keep_address(bridge: Path) -> None:
    """Give the bridge of the pods an address of its own.

    Otherwise it has that of one of the pods, and when that one ends, the others lose their network for up to 40 s.
    """
    if (bridge / "address").read_text().strip() != ADDRESS_OF_BRIDGE:
        command = ["ip", "link", "set", bridge.name, "address", ADDRESS_OF_BRIDGE]
        subprocess.run(command, check=True)


def send(folder: Path, part: str, number: signal.Signals) -> None:
    """Send a signal to a part of the bed in *folder*, such as `kubelet`."""
    pid, _ = (folder / "pids" / part).read_text().split()
    os.kill(int(pid), number)
