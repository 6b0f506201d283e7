"""An image is built once; if nothing changed, one request to the registry is all that happens."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer
from locked_project import Project, write_wheel
from small_images import push_image

from kinetic_images.builders.builder import Builder, BuildReports
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.ensure import EnsuredImage, ImageRequest, ImageServices, ensure_image
from kinetic_images.errors import (
    BuildError,
)
from kinetic_images.kept_records import SharedRecords
from kinetic_images.recipe import Recipe
from kinetic_images.registry.registry import Registry
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.records.signing import Signer
from kinetic_payload.testing.memory_store import MemoryStore
from kinetic_servers.registry.server import RegistryServer

PYTHON = "{}.{}".format(*sys.version_info)
REGISTRY = Registry(environ={}, google=lambda: None)
NEW, NEWER = ({"/app/remote_runner.py": text} for text in (b"new", b"newer"))


class World:
    """A registry, a bucket, and a project whose image is wanted on several machines."""

    def __init__(self, project: Project, server: RegistryServer) -> None:
        self.project = project
        self.server = server
        self.base = push_image(server.host, REGISTRY)
        self.bucket = MemoryStore()
        self.signer = Signer(b"k" * 32)
        for name, version in (("jax", "0.10.2"), ("jax", "0.12.0.1"), ("alpha", "1.0")):
            project.wheel(name, version)
        project.require("alpha")
        self.reports: list[str] = []
        self.waiting = threading.Semaphore(0)
        """Counts processes that wait for the build of another one."""

    def report(self, line: str) -> None:
        self.reports.append(line)
        if "waiting for it" in line:
            self.waiting.release()

    def home(self, machine: str) -> Path:
        return self.project.folder / machine

    def layers(self) -> LayersBuilder:
        folder = self.project.folder / "layers"
        return LayersBuilder(REGISTRY, WheelFiles(folder / "wheels"), folder, processes=1)

    def ensure(
        self,
        machine: str = "one",
        *,
        builders: Sequence[Builder] | None = None,
        shared: SharedRecords | None = None,
        alone: bool = False,
        **more: Any,
    ) -> EnsuredImage:
        request = ImageRequest(
            dependencies=self.project.dependencies(),
            category="cpu",
            python=PYTHON,
            base=self.base,
            repository=f"{self.server.host}/kn/bundled",
            files={"/app/remote_runner.py": b"print(1)"},
        )
        services = ImageServices(
            home=self.home(machine),
            registry=REGISTRY,
            builders=lambda: [Stub(self)] if builders is None else builders,
            shared=None if alone else shared or SharedRecords(self.bucket, self.signer),
            environ=self.project.environ,
            reports=BuildReports(line=self.report),
        )
        return ensure_image(replace(request, **more), services)

    def record(self) -> str:
        """The name of the only shared resolution."""
        (name,) = [name for name in self.bucket.names() if name.startswith("builds/resolved/")]
        return name


class Stub:
    """Stores an image without building it. May wait and fail."""

    def __init__(self, world: World, *errors: Exception) -> None:
        self.name = "stub"
        self.world = world
        self.errors = [*errors]
        self.builds = 0
        self.lock = threading.Lock()
        self.proceed = threading.Event()
        self.proceed.set()

    def check(self, recipe: Recipe, image: str) -> None:
        pass

    def obstacle(self, recipe: Recipe) -> str | None:
        return None

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        with self.lock:
            self.builds += 1
            error = self.errors.pop(0) if self.errors else None
        assert self.proceed.wait(60)
        if error is not None:
            raise error
        layers = [{"tag": recipe.tag.encode()}]
        return self.world.server.add_image("kn/bundled", recipe.tag, layers=layers)


def versions(image: EnsuredImage) -> dict[str, str]:
    return {package.name: package.version for package in image.recipe.packages}


@pytest.fixture(scope="session")
def kept_locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lock of a world's project, once a test has resolved it."""
    return tmp_path_factory.mktemp("kept") / "locks"


@pytest.fixture
def world(
    packages: FileServer, project: Project, server: RegistryServer, kept_locks: Path
) -> World:
    """A world where the machine `one` has resolved the dependencies before."""
    world = World(project, server)
    locks = world.home("one") / "cache" / "locks"
    if not kept_locks.exists():
        world.ensure(alone=True)
        shutil.copytree(locks, kept_locks)
        shutil.rmtree(world.home("one"))
        project.log.unlink()
        world.server.storage.remove_manifest(
            "kn/bundled", world.server.storage.tags("kn/bundled")[0]
        )
        world.reports.clear()
    shutil.copytree(kept_locks, locks)
    return world


def test_cuda_in_an_image_that_has_no_use_for_it_is_reported(world: World) -> None:
    world.project.wheel("plugin", "1.0", "nvidia-cuda-runtime")
    world.project.wheel("nvidia_cuda_runtime")
    world.project.require("plugin")
    (note,) = [note for note in world.ensure().notes if "nvidia-cuda-runtime" in note]
    assert "for a CPU" in note


class FailingStore(MemoryStore):
    """A store that must not be used."""

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        raise AssertionError(f"read {name}")


def test_if_nothing_changed_there_is_one_head_and_nothing_else(world: World) -> None:
    first = world.ensure()
    world.server.requests.clear()
    world.project.require("# a comment", "", "Alpha  # why")
    world.reports.clear()
    second = world.ensure(shared=SharedRecords(FailingStore(), world.signer))
    assert (second.reference, second.built_by) == (first.reference, None)
    assert [request.method for request in world.server.requests] == ["HEAD"]
    assert world.project.runs() == 0
    assert world.reports == []


def test_another_machine_gets_the_same_image_even_if_the_index_has_changed(world: World) -> None:
    first = world.ensure("one")
    world.project.wheel("alpha", "2.0")
    world.reports.clear()
    second = world.ensure("two")
    assert (second.reference, second.built_by) == (first.reference, None)
    assert world.project.runs() == 0
    requirements = world.project.dependencies().source
    assert world.reports == [
        f"The dependencies in {requirements} were resolved before, and shared."
    ]
    third = world.ensure("two", refresh=True)
    assert versions(third)["alpha"] == "2.0"
    assert world.ensure("three").reference == third.reference


def test_what_depends_on_a_folder_of_wheels_is_kept_here_and_not_shared(world: World) -> None:
    wheels = world.project.root / "wheels"
    for version in ("1.0", "2.0"):
        write_wheel(wheels / f"beta-{version}-py3-none-any.whl", "beta", version)
        world.project.require("--find-links wheels", "alpha", "beta")
        image = world.ensure("one")
        assert (versions(image)["beta"], image.built_by) == (
            "1.0",
            None if version == "2.0" else "stub",
        )
    assert not [name for name in world.bucket.names() if "resolved" in name]
    assert versions(world.ensure("two"))["beta"] == "2.0"


def test_a_shared_record_that_is_damaged_is_replaced() -> None:
    records = SharedRecords(MemoryStore(), Signer(b"k" * 32))
    records.offer("x", {"lock": "a"})
    assert records.offer("x", {"lock": "b"})["lock"] == "a"
    records.store.write("x", b"damaged")
    assert records.offer("x", {"lock": "c"})["lock"] == "c"
    assert (records.find("x") or {})["lock"] == "c"


def test_a_change_is_named_before_it_is_built(world: World) -> None:
    world.ensure()
    world.project.wheel("beta", "3.0")
    world.project.require("alpha", "beta")
    world.ensure()
    assert (
        "A new image is needed. Changed since the last one: packages (beta 3.0 added)."
        in world.reports
    )
    world.ensure(files=NEW)
    assert any("file /app/remote_runner.py" in line for line in world.reports)


def test_ten_submits_on_two_machines_build_it_once(world: World) -> None:
    builder = Stub(world)
    builder.proceed.clear()
    with ThreadPoolExecutor(10) as pool:
        futures = [
            pool.submit(world.ensure, f"machine-{number % 2}", builders=[builder])
            for number in range(10)
        ]
        try:
            waiting = [world.waiting.acquire(timeout=60) for _ in range(9)]
            finished = [future for future in futures if future.done()]
        finally:
            builder.proceed.set()
        assert (all(waiting), finished) == (True, [])
        images = [future.result() for future in futures]
    assert builder.builds == 1
    assert len({image.reference for image in images}) == 1
    assert [image.built_by for image in images].count("stub") == 1
    assert world.project.runs() <= 2
    assert not [name for name in world.bucket.names() if name.startswith("builds/claims/")]


def test_if_the_build_fails_a_record_stays_and_the_next_one_tries(world: World) -> None:
    builder = Stub(world, BuildError("It does not compile."))
    with pytest.raises(BuildError, match="does not compile"):
        world.ensure(builders=[builder])
    (name,) = [name for name in world.bucket.names() if name.endswith("build.json")]
    assert "does not compile" in json.loads(world.bucket.read(name))["error"]
    assert world.ensure("two", builders=[builder]).built_by == "stub"
    record = json.loads(world.bucket.read(name))
    assert (record["error"], record["builder"]) == ("", "stub")
    assert "Building" in world.bucket.read(name.replace("build.json", "log.txt")).decode()


def test_a_record_that_was_written_without_the_key_is_not_used(world: World) -> None:
    first = world.ensure("one")
    record = json.loads(world.bucket.read(world.record()))
    lock = record["lock"].replace("alpha-1.0-py3", "alpha-6.6-py3")
    world.bucket.write(world.record(), json.dumps({**record, "lock": lock}).encode())
    assert world.ensure("two").reference == first.reference
    assert "alpha-1.0-py3" in json.loads(world.bucket.read(world.record()))["lock"]


@pytest.mark.parametrize(
    "change",
    [
        {"lock": None},
        {"lock": {"packages": []}},
        {"lock": "packages = 5"},
        {"glibc": "2."},
        {"base": 5},
        {"base": "h.io/base:1"},
    ],
)
def test_a_record_of_another_form_is_not_used(
    world: World, kept_locks: Path, change: dict[str, Any]
) -> None:
    first = world.ensure("one")
    shutil.copytree(kept_locks, world.home("two") / "cache" / "locks")
    shared = SharedRecords(world.bucket, world.signer)
    record = shared.find(world.record()) or {}
    shared.offer(world.record(), {**record, **change}, replace=True)
    assert world.ensure("two").reference == first.reference


def test_labels_of_the_base_decide_on_its_python_and_its_glibc_and_may_be_missing(
    world: World,
) -> None:
    labels = {"kinetic.python": PYTHON, "kinetic.glibc": "2.17"}
    base = push_image(world.server.host, REGISTRY, tag="4", Env=[], Labels=labels)
    tag = f"cp{PYTHON.replace('.', '')}-abi3-manylinux_2_28_x86_64"
    world.project.wheel("alpha", "2.0", tag=tag)
    image = world.ensure(base=base)
    assert image.notes == ()
    assert versions(image)["alpha"] == "1.0"

    base = push_image(world.server.host, REGISTRY, tag="5", Env=[])
    image = world.ensure("two", base=base)
    (note,) = image.notes
    assert f"{base} does not say which Python it has" in note
    assert versions(image)["alpha"] == "2.0"


def test_a_package_without_a_wheel_goes_to_the_next_builder_with_a_report(world: World) -> None:
    world.project.source("beta")
    world.project.require("alpha", "beta")
    with pytest.raises(BuildError, match=r"(?s)beta 1\.0.*KINETIC_IMAGE_BUILDER"):
        world.ensure(builders=[world.layers()])

    image = world.ensure(builders=[world.layers(), Stub(world)])
    assert image.built_by == "stub"
    assert any("beta 1.0" in line and "built by stub" in line for line in world.reports)


def test_an_addition_is_left_out_if_the_project_names_it(world: World) -> None:
    world.project.wheel("debugpy", "1.0")
    world.project.wheel("debugpy", "2.0")
    assert versions(world.ensure(additions=("debugpy>=2",)))["debugpy"] == "2.0"
    world.project.require("alpha", "DebugPy<2")
    assert versions(world.ensure(additions=("debugpy>=2",)))["debugpy"] == "1.0"
