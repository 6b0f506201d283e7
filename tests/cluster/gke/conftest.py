"""A user's project whose jobs run on the test cluster, with their objects where its pods reach them."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pods
import pytest
import urllib3
from images import REQUIREMENTS, image_of
from standins import PROXY, SCRATCH, SERVER, push

from kinetic.testing import eventually
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_servers.gcs import Faults, GcsProcess, GcsServer
from kinetic_servers.stub_jobs import run

BUCKET = "jobs"
GATES = "gates"
GATE = f"""
import os, time
from urllib.request import Request, urlopen

HOST = os.environ.get("STORAGE_EMULATOR_HOST")

def gate(name):
    'Say that we are here, and wait until we may pass.'
    place = f"{{HOST}}/upload/storage/v1/b/{GATES}/o?uploadType=media&name=at-{{name}}"
    ask(Request(place, data=b"", method="POST"))
    ask(f"{{HOST}}/storage/v1/b/{GATES}/o/{{name}}")

def ask(request):
    'Repeat the request until it succeeds: a busy machine also drops connections.'
    while True:
        try:
            return urlopen(request, timeout=10)
        except OSError:
            time.sleep(0.1)
"""


@pytest.fixture(scope="session")
def image(bed: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with what a custom image needs: Python, cloudpickle, google-cloud-storage."""
    return image_of(bed, tmp_path_factory.mktemp("image"), REQUIREMENTS)


@pytest.fixture(scope="session")
def image_with_jax(bed: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with JAX and scikit-learn, which make it large: it is made only where it is needed."""
    folder = tmp_path_factory.mktemp("image")
    more = (f"{name}=={importlib.metadata.version(name)}" for name in ("jax", "scikit-learn"))
    imports = (
        "google.cloud.storage",
        "cloudpickle",
        "jax.experimental.multihost_utils",
        "sklearn.datasets",
    )
    return image_of(bed, folder, (*REQUIREMENTS, *more), imports=imports)


@pytest.fixture(scope="session")
def bucket(bed: Any) -> Iterator[GcsProcess]:
    """A bucket service that pods and clients reach by the same address."""
    with GcsProcess(
        BUCKET, GATES, arguments=["--host", bed.environment["KUBE_BED_HOST"]]
    ) as server:
        yield server


@pytest.fixture(scope="session")
def bucket_here(bed: Any) -> Iterator[GcsServer]:
    """The same in this process, where tests can wait in the middle of a request."""
    with GcsServer(host=bed.environment["KUBE_BED_HOST"]) as server:
        server.create_bucket(BUCKET)
        server.create_bucket(GATES)
        yield server


@dataclass
class Project:
    """A folder with a user's files, and ways to run them, and to look at what runs then."""

    root: Path
    home: Path
    bed: Any
    namespace: str
    image: str
    bucket: GcsProcess | GcsServer
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KINETIC_")}  # noqa: TID251
        return {
            **kept,
            **self.bucket.environment,
            "KUBECONFIG": self.bed.kubeconfig,
            "KINETIC_HOME": str(self.home),
            "KINETIC_BACKEND": "gke",
            "KINETIC_KUBE_CONTEXT": "kube-bed",
            "KINETIC_NAMESPACE": self.namespace,
            "KINETIC_STORE": f"gs://{BUCKET}",
            "IMAGE": self.image,
            **self.variables,
        }

    def start(
        self, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.root,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, environment=environment)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def script(self, text: str, **environment: str) -> str:
        """Write `main.py`, run it, and return what it printed; it must succeed."""
        (self.root / "main.py").write_text(textwrap.dedent(text))
        done = self.run("main.py", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kinetic(self, *arguments: str, **environment: str) -> str:
        """Run the command `kinetic` in this process, as another one imports for 0.7 s; it must succeed."""
        others = dict.fromkeys(name for name in os.environ if name.startswith("KINETIC_"))  # noqa: TID251
        with chdir(self.root):
            given = {**others, **self.environment, **environment}
            done = run(*arguments, home=Path(given["KINETIC_HOME"]), environment=given)
        assert done.exit_code == 0, done.stdout + done.stderr
        return done.stdout

    def objects(self, kind: str, job_id: str) -> list[Manifest]:
        """Return the objects of a job, independently of our code; *kind* may be several."""
        found: list[Manifest] = self.bed.objects(kind, self.namespace, f"{JOB_ID}={job_id}")
        return found

    def pass_gate(self, name: str) -> None:
        """Let go on what waits at this gate."""
        url = f"{self.bucket.endpoint}/upload/storage/v1/b/{GATES}/o?uploadType=media&name={name}"
        assert urllib3.request("POST", url, body=b"").status == 200

    def await_gate(self, name: str) -> None:
        """Wait until a job is at this gate."""
        wait_for(lambda: f"at-{name}" in self.bucket.names(GATES))

    def kept(self, job_id: str) -> list[str]:
        """Return the names of the job's objects in the bucket, its logs left out."""
        return self.bucket.names(BUCKET, f"{job_id}/")


@pytest.fixture
def own_namespace(bed: Any) -> Iterator[str]:
    """A namespace in which no other test's jobs are, and no key."""
    with bed.new_namespace() as name:
        yield name


wait_for = partial(eventually, every=0.2)


@pytest.fixture(name="wait_for")
def _wait_for() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def project(
    tmp_path: Path,
    warm: Callable[[Path], Path],
    bed: Any,
    namespace: str,
    image: str,
    bucket: GcsProcess,
) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]\nname = 'users-project'\nversion = '1'\n")
    (root / "gates.py").write_text(GATE)
    shutil.copy(pods.__file__, root)
    return Project(root, warm(tmp_path / "home"), bed, namespace, image, bucket)


@pytest.fixture
def faults(project: Project, bucket_here: GcsServer) -> Iterator[Faults]:
    """The faults of the bucket that the project uses from now on; none is left."""
    project.bucket = bucket_here
    yield bucket_here.faults
    bucket_here.faults.clear()


@pytest.fixture
def on_slice(project: Project, slice_of_two: str, priority: str) -> Project:
    """A project whose jobs run on two hosts, beside those of others."""
    project.variables |= {"SLICE": slice_of_two, "PRIORITY": priority, "JAX_PLATFORMS": "cpu"}
    return project


@pytest.fixture(scope="session")
def components(bed: Any) -> dict[str, str]:
    """Settings that put stand-ins with few resources in the place of the components of Pathways."""
    registry = bed.environment["KUBE_BED_REGISTRY"]
    tiny = "cpu=50m,memory=64Mi"
    return {
        "KINETIC_PATHWAYS_SERVER_IMAGE": push(registry, "pathways-server", SERVER),
        "KINETIC_PATHWAYS_PROXY_IMAGE": push(registry, "pathways-proxy", PROXY),
        "KINETIC_PATHWAYS_SCRATCH": SCRATCH,
        "KINETIC_PATHWAYS_HEAD_TOPOLOGY": "none",
        **{f"KINETIC_PATHWAYS_{name}": tiny for name in ("MANAGER", "PROXY", "WORKER")},
    }
