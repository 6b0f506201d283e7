"""From a submit to the function in bundled, prebuilt and custom images; with what a change of the project rebuilds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Figure
from measuring import Bench

from kinetic.waiting import sleep
from kinetic_servers.gcs import GcsProcess

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / folder) for folder in (".ci", "tests/cluster", "tests/tools")]

from bed import Bed, start  # noqa: E402
from images import Registry  # noqa: E402
from pods import small  # noqa: E402
from tiers import obstacle  # noqa: E402 - what CI asks as well
from wheel_maker import make_wheel  # noqa: E402

BUCKET = "bench-modes"
NOW = "import time; print(time.time())"
NO_CHANGE, COMMENT, PACKAGE = "no change", "a changed comment", "one small package more"
BARE = "start of a bare pod"


@dataclass(frozen=True)
class Modes:
    """A project whose jobs run in each mode, with repositories and a namespace of its own."""

    bench: Bench
    bed: Bed
    server: GcsProcess
    namespace: str

    @property
    def project(self) -> Path:
        return self.bench.folder / "modes"

    @property
    def variables(self) -> dict[str, str]:
        registry = self.bed.environment["KUBE_BED_REGISTRY"]
        return {
            **self.server.environment,
            "KUBECONFIG": self.bed.kubeconfig,
            "KINETIC_BACKEND": "gke",
            "KINETIC_KUBE_CONTEXT": "kube-bed",
            "KINETIC_NAMESPACE": self.namespace,
            "KINETIC_STORE": f"gs://{BUCKET}",
            "KINETIC_BUILDS_STORE": f"gs://{BUCKET}",
            "KINETIC_BASE_IMAGE": f"{registry}/base/python:3.11",
            "KINETIC_BASE_IMAGE_REPO": f"{registry}/{self.namespace}",
            "KINETIC_IMAGE_REPO": f"{registry}/{self.namespace}",
        }

    def require(self, packages: int, comment: int) -> None:
        """Let the project require so many small packages, besides JAX."""
        names = (f"small-{number}" for number in range(packages))
        lines = (f"# {comment}", "--find-links wheels", *names)
        (self.project / "requirements.txt").write_text("\n".join(lines))

    def run(self, image: str) -> Any:
        """Run a job in a new process; the client's findings."""
        arguments = (image, json.dumps(small()))
        return self.bench.client(
            "image_modes", *arguments, project=self.project, variables=self.variables
        )

    def bare(self, image: str) -> float:
        """Return the seconds from the request for a pod to the first line of its Python."""
        overrides = small()["spec"]
        container = {
            **overrides["containers"][0],
            "image": image,
            "command": ["python3", "-c", NOW],
        }
        pods = self.bed.path_of("pod", self.namespace)
        spec = {**overrides, "containers": [container], "restartPolicy": "Never"}
        began = time.time()
        made = self.bed.ask(
            "POST", pods, body={"metadata": {"generateName": "bare-"}, "spec": spec}
        )
        path = f"{pods}/{made['metadata']['name']}"
        while (pod := self.bed.ask("GET", path))["status"]["phase"] != "Succeeded":
            assert pod["status"]["phase"] != "Failed", self.bed.log_of(pod)
            sleep(0.2)
        reached = float(self.bed.log_of(pod))
        self.bed.ask("DELETE", path)
        return reached - began

    def layers_of(self, image: str) -> set[str]:
        host, _, path = image.partition("/")
        repository, _, digest = path.partition("@")
        return {each["digest"] for each in Registry(host).manifest(repository, digest)["layers"]}


def figures(bench: Bench) -> Iterator[Figure]:
    if (why := obstacle()) is not None:
        raise SystemExit(f"The group `modes` cannot be measured: {why}.")
    bed = start()
    arguments = ("--host", bed.environment["KUBE_BED_HOST"], "--no-md5")
    with GcsProcess(BUCKET, arguments=arguments) as server, bed.new_namespace() as name:
        yield from measured(Modes(bench, bed, server, name))


def measured(modes: Modes) -> Iterator[Figure]:
    """Run jobs of each mode by turns: after no change, after a changed comment, and with one package more."""
    rounds = modes.bench.rounds(5, quick=1)
    (modes.project / "wheels").mkdir(parents=True)
    for number in range(rounds + 1):
        name = f"small_{number}"
        files = {f"{name}.py": "VALUE = 1\n"}
        make_wheel(modes.project / "wheels", files, name=name, version="1")
    modes.require(1, comment=-1)
    modes.bench.python(
        *("-m", "kinetic_cli", "build-image", "--category", "cpu"), variables=modes.variables
    )
    built = modes.run("bundled")["image"]
    # The custom image is the bundled one, so both have the same contents.
    images = {"bundled": "bundled", "prebuilt": "prebuilt", "custom": built}
    previous = {name: modes.run(image)["image"] for name, image in images.items()}

    bare: list[float] = []
    starts: dict[tuple[str, str], list[float]] = {}
    counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for number in range(rounds):
        bare.append(modes.bare(built))
        for change, packages, comment in (
            (NO_CHANGE, number + 1, number - 1),
            (COMMENT, number + 1, number),
            (PACKAGE, number + 2, number),
        ):
            modes.require(packages, comment)
            for name, image in images.items():
                found = modes.run(image)
                new = modes.layers_of(found["image"]) - modes.layers_of(previous[name])
                previous[name] = found["image"]
                starts.setdefault((name, change), []).append(found["start"])
                counts.setdefault((name, change), []).append((len(new), found["installed"]))
    for (name, change), samples in starts.items():
        what = f"submit → function, {name} image, {change}"
        yield Figure(what=what, samples=samples, floor=BARE, floor_samples=bare)
        layers, installed = zip(*counts[name, change], strict=True)
        if name == "bundled":
            yield Figure(what=f"{what}: layers built", samples=layers, unit="")
        if name == "prebuilt":
            yield Figure(what=f"{what}: packages that the job installs", samples=installed, unit="")
