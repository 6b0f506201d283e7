from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eager import eager
from file_server import FileServer
from wheel_maker import extracted, locked, make_wheel

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.builders.layers.plan import LARGE
from kinetic_images.downloads import Downloader
from kinetic_images.errors import (
    BuildError,
    DownloadError,
    InvalidWheelError,
    RegistryError,
)
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.recipe import Recipe
from kinetic_images.registry.oci import DOCKER_LAYER, DOCKER_MANIFEST
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import RemoteImage
from kinetic_images.targets import Target
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.progress import Advance
from kinetic_payload.threads import parallel_map
from kinetic_servers.registry import RegistryServer

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RUNNER = {"/app/remote_runner.py": b"print('runner')\n"}
BUILD = """
import json, sys
from pathlib import Path
from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.recipe import Recipe
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Target
from kinetic_images.wheel_files import WheelFiles
given = json.loads(sys.argv[1])
packages = tuple(LockedPackage(**each) for each in given["packages"])
recipe = Recipe(target=Target(python=given["python"]), base=given["base"], packages=packages)
cache = Path(given["cache"])
builder = LayersBuilder(Registry(environ={}), WheelFiles(cache / "wheels"), cache / "layers")
print(builder.build(recipe, given["image"], BuildReports()))
"""


class Setup:
    """A base image, some wheels, and a builder."""

    def __init__(self, server: RegistryServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.lines: list[str] = []
        self.base = self.add_base()

    def add_base(self, server: RegistryServer | None = None, **more: Any) -> str:
        server = server or self.server
        digest = server.add_image("base/python", "3", **more)
        return f"{server.host}/base/python@{digest}"

    def wheel(self, name: str, size: int = 0, version: str = "1.0") -> LockedPackage:
        files = {f"{name}/__init__.py": f"V = {version!r}\n", f"{name}/data": os.urandom(size)}
        return locked(make_wheel(self.folder / "wheels", files, name=name, version=version))

    def recipe(self, *packages: LockedPackage, **more: Any) -> Recipe:
        given = {"target": Target(python=PYTHON), "base": self.base, "files": RUNNER, **more}
        return Recipe(packages=packages, **given)

    def builder(self, cache: str = "cache") -> LayersBuilder:
        downloads = Downloader(environ={}, policy=eager())
        return LayersBuilder(
            Registry(environ={}, policy=eager()),
            WheelFiles(self.folder / cache / "wheels", downloads),
            self.folder / cache / "layers",
            processes=1,
        )

    def image(self, recipe: Recipe, server: RegistryServer | None = None) -> str:
        return f"{(server or self.server).host}/kn/images:{recipe.tag}"

    def build(self, recipe: Recipe, cache: str = "cache") -> str:
        reports = BuildReports(line=self.lines.append)
        return self.builder(cache).build(recipe, self.image(recipe), reports)

    def found(self, digest: str, server: RegistryServer | None = None) -> RemoteImage:
        host = (server or self.server).host
        return Registry(environ={}).repository(f"{host}/kn/images").image(digest, "amd64")

    def unpacked(self, digest: str) -> Path:
        repository = Registry(environ={}).repository(f"{self.server.host}/kn/images")
        folder = self.folder / "unpacked" / digest
        for layer in self.found(digest).manifest.layers:
            extracted(repository.blob(layer.digest), folder)
        return folder

    def uploads(self) -> int:
        return sum(each.method == "PUT" and "/blobs/" in each.path for each in self.server.requests)

    def partial(self) -> list[Path]:
        return list((self.folder / "cache/layers").glob("partial/*"))


@pytest.fixture
def setup(server: RegistryServer, tmp_path: Path) -> Setup:
    return Setup(server, tmp_path)


def test_an_image_has_the_base_the_packages_the_files_and_the_labels(setup: Setup) -> None:
    recipe = setup.recipe(
        setup.wheel("big", LARGE), setup.wheel("a"), setup.wheel("b"), labels={"made": "here"}
    )

    digest = setup.build(recipe)

    writes = [each for each in setup.server.requests if each.method in ("PUT", "POST")]
    assert writes[-1].path == f"/v2/kn/images/manifests/{recipe.tag}"  # The tag is the last.
    # The layer of the base is mounted; three layers and a configuration are uploaded.
    assert [each.status for each in writes if "mount" in each.query] == [201]
    assert setup.uploads() == 4
    image, root = setup.found(digest), setup.unpacked(digest)
    assert setup.found(recipe.tag).digest == digest
    assert len(image.manifest.layers) == 1 + 3
    assert [entry["created_by"] for entry in image.config.history[1:]] == [
        "kinetic-images: big 1.0",
        "kinetic-images: 2 packages",
        "kinetic-images: files",
    ]
    assert image.config.labels == {"made": "here"}
    assert (root / "hello.txt").read_text() == "hello\n"
    assert (root / "app/remote_runner.py").read_bytes() == RUNNER["/app/remote_runner.py"]
    for name in ("big", "a", "b"):
        assert (root / f"opt/kn/site/{name}/__init__.py").is_file()
        assert list((root / f"opt/kn/site/{name}/__pycache__").iterdir())
    assert (root / f"usr/local/lib/python{PYTHON}/site-packages/000_kn.pth").is_file()
    assert setup.partial() == []


def test_a_small_package_more_is_one_layer_more_and_the_rest_is_neither_sent_nor_read(
    setup: Setup,
) -> None:
    big, small = setup.wheel("big", LARGE), setup.wheel("a")
    setup.build(setup.recipe(big, small))
    Path(big.address.removeprefix("file://")).unlink()
    setup.server.requests.clear()

    setup.build(setup.recipe(big, small, setup.wheel("b")))

    assert setup.uploads() == 2  # The layer of small packages, and the configuration.
    assert setup.lines[-1].startswith("Layers of packages: 1 already in the registry, 1 added (")


def test_builds_of_one_image_at_once_or_on_another_machine_agree(setup: Setup) -> None:
    recipe = setup.recipe(setup.wheel("big", LARGE), *(setup.wheel(name) for name in "abcdef"))

    def build(cache: str) -> str:
        return setup.builder(cache).build(recipe, setup.image(recipe), BuildReports())

    digests = set(parallel_map(build, ["one", "two", "two"], threads=3))

    assert digests == {setup.found(recipe.tag).digest}
    setup.server.storage.remove_manifest("kn/images", recipe.tag)
    assert {build("three")} == digests


def test_bytes_are_counted_while_they_are_downloaded_and_uploaded(
    setup: Setup, index: FileServer
) -> None:
    package = setup.wheel("big", LARGE)
    assert package.size is not None
    data = Path(package.address.removeprefix("file://")).read_bytes()
    package = replace(package, address=index.add("/big.whl", data))
    counted: dict[tuple[str, int | None], int] = {}

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        def advance(size: int) -> None:
            counted[doing, total] = counted.get((doing, total), 0) + size

        yield advance

    recipe = setup.recipe(package)
    digest = setup.builder().build(recipe, setup.image(recipe), BuildReports(progress=track))

    layer = setup.found(digest).manifest.layers[1]
    assert counted == {
        ("downloading packages", package.size): package.size,
        ("uploading layers", None): layer.size,
    }


def test_an_image_that_appeared_meanwhile_is_adopted(setup: Setup) -> None:
    recipe = setup.recipe()  # Without packages.
    theirs = setup.server.add_image("kn/images", recipe.tag)
    setup.server.requests.clear()

    assert setup.builder().obstacle(recipe) is None
    assert setup.build(recipe) == theirs
    assert not [
        each
        for each in setup.server.requests
        if "/manifests/" in each.path and each.method == "PUT"
    ]


@pytest.mark.parametrize("where", ["elsewhere", "no mounts"])
def test_layers_of_the_base_are_copied_otherwise(setup: Setup, where: str, tmp_path: Path) -> None:
    with RegistryServer(mounts=False) as target:
        if where == "no mounts":
            setup.base = setup.add_base(target, layers=[{"x": b"1"}, {"y": b"2" * 100_000}])
        recipe = setup.recipe(setup.wheel("a"))

        digest = setup.builder().build(recipe, setup.image(recipe, target), BuildReports())

        image = setup.found(digest, target)
        repository = Registry(environ={}).repository(f"{target.host}/kn/images")
        assert all(repository.has_blob(layer.digest) for layer in image.manifest.layers)


def test_an_image_is_for_the_architecture_and_without_that_python_has_no_bytecode(
    setup: Setup,
) -> None:
    setup.base = setup.add_base(architectures=["amd64", "arm64"], docker=True)
    target = Target(python="3.99", machine="aarch64")
    recipe = setup.recipe(setup.wheel("a"), setup.wheel("b"), target=target)

    digest = setup.build(recipe)

    repository = Registry(environ={}).repository(f"{setup.server.host}/kn/images")
    image = repository.image(digest, "arm64")
    assert image.config.architecture == "arm64"
    assert image.manifest.media_type == DOCKER_MANIFEST  # As the base has it.
    assert {layer.media_type for layer in image.manifest.layers} == {DOCKER_LAYER}
    for layer in image.manifest.layers:
        members = extracted(repository.blob(layer.digest), setup.folder / "unpacked")
        assert not [name for name in members if name.endswith(".pyc")]
    assert [line for line in setup.lines if "bytecode" in line] == [
        "The image has no bytecode, because this Python is not 3.99: imports take longer at each start."
    ]


@pytest.mark.parametrize("file", ["old-1.0.tar.gz", ""])
def test_a_package_without_a_wheel_is_an_obstacle(setup: Setup, file: str) -> None:
    package = replace(setup.wheel("old"), file=file)
    recipe = setup.recipe(package, setup.wheel("new"))

    obstacle = setup.builder().obstacle(recipe) or ""
    assert obstacle.endswith("these packages have none: old 1.0.")
    with pytest.raises(BuildError, match="old"):
        setup.build(recipe)


def test_a_base_with_too_many_layers_or_an_own_environment_is_an_obstacle(setup: Setup) -> None:
    setup.base = setup.add_base(layers=[{f"{number}": b""} for number in range(119)])
    assert "119 layers" in (setup.builder().obstacle(setup.recipe()) or "")
    setup.base = setup.add_base(settings={"Env": ["VIRTUAL_ENV=/venv"]})
    assert "/venv" in (setup.builder().obstacle(setup.recipe()) or "")


def test_a_failure_names_its_cause_and_leaves_no_tag_and_no_file(
    setup: Setup, index: FileServer
) -> None:
    gone = replace(setup.wheel("gone"), address=index.url("/gone.whl"))
    invalid = locked(make_wheel(setup.folder / "wheels", wheel=None, name="bad"))
    cases: list[tuple[LockedPackage, type[Exception], str]] = [
        (gone, DownloadError, r"gone 1\.0"),
        (invalid, InvalidWheelError, r"bad-1\.0"),
        (setup.wheel("a"), RegistryError, "status 403"),
    ]
    for package, kind, message in cases:
        recipe = setup.recipe(setup.wheel("big", LARGE), package)
        if kind is RegistryError:
            fault = {"method": "POST", "path": "*/blobs/uploads/*", "status": 403}
            setup.server.faults.add(**fault, times=None)

        with pytest.raises(kind, match=message):
            setup.build(recipe)

        assert setup.partial() == []
        assert recipe.tag not in (setup.server.storage.tags("kn/images"))


@pytest.mark.parametrize(
    ("number", "stalled"),
    [
        (signal.SIGKILL, "*/blobs/uploads/*"),
        (signal.SIGTERM, "*/manifests/*"),
        (signal.SIGINT, "*/blobs/uploads/*"),
    ],
)
def test_a_build_that_is_ended_leaves_no_tag_and_the_next_one_cleans_up(
    setup: Setup, number: signal.Signals, stalled: str
) -> None:
    recipe = setup.recipe(setup.wheel("big", LARGE), files={})
    fault = setup.server.faults.add(method="PUT", path=stalled, held=True)
    given = {
        "python": PYTHON,
        "base": recipe.base,
        "image": setup.image(recipe),
        "cache": str(setup.folder / "cache"),
        "packages": [
            {name: getattr(each, name) for name in ("name", "version", "file", "sha256", "address")}
            for each in recipe.packages
        ],
    }
    command = [sys.executable, "-c", BUILD, json.dumps(given)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while not fault.hits and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)  # noqa: TID251
        process.send_signal(number)
        assert process.wait(10) != 0
    fault.release()

    assert fault.hits == 1
    setup.server.faults.clear()
    assert recipe.tag not in setup.server.storage.tags("kn/images") or stalled == "*/manifests/*"
    digest = setup.build(recipe)
    assert setup.found(recipe.tag).digest == digest
    assert setup.partial() == []
