"""An image is built once, whoever asks; if nothing changed, the registry is asked once and nothing else happens."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from locked_project import Project, write_wheel
from small_images import push_image

from kinetic_images.builders.builder import Builder, BuildReports
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.claims import Claims
from kinetic_images.dependencies import read_dependencies
from kinetic_images.downloads import Downloader
from kinetic_images.ensure import EnsuredImage, ImageRequest, ImageServices, ensure_image
from kinetic_images.errors import (
    BuildError,
    DependencyError,
    DownloadError,
    ImageNotFoundError,
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.recipe import Recipe
from kinetic_images.registry.registry import Registry
from kinetic_images.shared_records import SharedRecords
from kinetic_images.testing.registry.server import RegistryServer
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.http.retry import RetryPolicy
from kinetic_payload.layout import build_claim
from kinetic_payload.records.signing import Signer
from kinetic_payload.testing.memory_store import MemoryStore

PYTHON = "{}.{}".format(*sys.version_info)


class Silent(SimpleHTTPRequestHandler):
    """Serves files without a log, or fails if `unavailable` says so."""

    def __init__(self, *arguments: Any, unavailable: Callable[[], bool], **more: Any) -> None:
        self.unavailable = unavailable
        super().__init__(*arguments, **more)

    def send_head(self) -> Any:
        if self.unavailable():
            self.send_error(500)
            return None
        return super().send_head()

    def log_message(self, *arguments: object) -> None:
        pass


class World:
    """A registry, a bucket, and a project whose image is wanted on several machines."""

    def __init__(self, project: Project, server: RegistryServer) -> None:
        self.project = project
        self.server = server
        self.registry = self.connected()
        self.base = push_image(server.host, self.registry)
        self.bucket = MemoryStore()
        self.signer = Signer(b"k" * 32)
        for version in ("0.10.2", "0.12.0.1"):
            project.wheel("jax", version)
        project.wheel("alpha", "1.0")
        project.require("alpha")
        self.reports: list[str] = []
        self.unavailable = False

    def vanish(self, name: str, version: str) -> None:
        """Remove a wheel from the index."""
        (self.project.packages / f"{name}-{version}-py3-none-any.whl").unlink()

    def layers(self, machine: str) -> LayersBuilder:
        home = self.project.folder / machine
        policy = RetryPolicy(limit=0.5, first=0.01, longest=0.05)
        wheels = WheelFiles(home / "wheels", Downloader(environ={}, policy=policy))
        return LayersBuilder(self.registry, wheels, home / "layers", processes=1)

    def connected(self) -> Registry:
        return Registry(environ={}, google=lambda: None, policy=RetryPolicy(limit=0.5))

    def request(self, **more: Any) -> ImageRequest:
        request = ImageRequest(
            dependencies=self.project.dependencies(),
            category="cpu",
            python=PYTHON,
            base=self.base,
            repository=f"{self.server.host}/kn/bundled",
            files={"/app/remote_runner.py": b"print(1)"},
        )
        return replace(request, **more)

    def ensure(
        self,
        machine: str = "one",
        *,
        builders: Sequence[Builder] | None = None,
        shared: SharedRecords | None = None,
        alone: bool = False,
        **more: Any,
    ) -> EnsuredImage:
        home = self.project.folder / machine
        layers = self.layers(machine)
        services = ImageServices(
            home=home,
            registry=self.registry,
            builders=lambda: [layers] if builders is None else builders,
            shared=None if alone else shared or SharedRecords(self.bucket, self.signer),
            environ=self.project.environ,
            reports=BuildReports(line=self.reports.append),
        )
        return ensure_image(self.request(**more), services)

    def packages(self, image: EnsuredImage) -> dict[str, str]:
        return {package.name: package.version for package in image.recipe.packages}


@pytest.fixture
def world(project: Project) -> Iterator[World]:
    worlds: list[World] = []
    handler = partial(
        Silent,
        directory=str(project.packages),
        unavailable=lambda: any(world.unavailable for world in worlds),
    )
    with RegistryServer() as server, ThreadingHTTPServer(("127.0.0.1", 0), handler) as packages:
        threading.Thread(target=packages.serve_forever, daemon=True).start()
        project.links = f"http://127.0.0.1:{packages.server_address[1]}/"
        worlds.append(World(project, server))
        yield worlds[0]
        packages.shutdown()


def test_an_image_is_built_with_the_packages_and_files_and_named_by_digest(world: World) -> None:
    image = world.ensure()
    assert image.built_by == "layers"
    assert set(world.packages(image)) == {"alpha", "jax"}
    found = world.registry.repository(image.reference).image(
        image.reference.partition("@")[2], "amd64"
    )
    assert len(found.manifest.layers) == 3


def test_if_nothing_changed_there_is_one_head_and_nothing_else(world: World) -> None:
    first = world.ensure()
    world.server.requests.clear()
    world.project.require("# a comment", "", "Alpha  # why")
    world.reports.clear()
    unreachable = FailingStore()
    second = world.ensure(shared=SharedRecords(unreachable, world.signer))
    assert (second.reference, second.built_by) == (first.reference, None)
    assert [request.method for request in world.server.requests] == ["HEAD"]
    assert world.project.runs() == 1
    assert world.reports == []


class FailingStore(MemoryStore):
    """A store that must not be used."""

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        raise AssertionError(f"read {name}")


def test_another_machine_gets_the_same_image_whatever_the_index_has_by_then(world: World) -> None:
    first = world.ensure("one")
    world.project.wheel("alpha", "2.0")
    world.reports.clear()
    second = world.ensure("two")
    assert (second.reference, second.built_by) == (first.reference, None)
    assert world.project.runs() == 1
    requirements = world.project.dependencies().source
    assert world.reports == [
        f"The dependencies in {requirements} were resolved before, and shared."
    ]
    third = world.ensure("two", refresh=True)
    assert world.packages(third)["alpha"] == "2.0"
    assert world.ensure("three").reference == third.reference


FOLDERS = {
    "relative": "--find-links wheels",
    "absolute": "--find-links {root}/wheels",
    "of uv": "",
    "flat index": "",
}
UV_TOML = {
    "of uv": "find-links = ['wheels', '{links}']\n",
    "flat index": "[[index]]\nname = 'ours'\nurl = 'wheels'\nformat = 'flat'\ndefault = true\n",
}


class Checkout:
    """The same project on another machine, in another folder, with a folder of wheels."""

    def __init__(self, world: World, machine: str, form: str, *needs: str) -> None:
        self.world, self.machine = world, machine
        root = world.project.folder / "machines" / machine / "project"
        (root / ".git").mkdir(parents=True)
        write_wheel(root / "wheels" / "beta-1.0-py3-none-any.whl", "beta", "1.0", *needs)
        links = world.project.links
        lines = [f"--find-links {links}", FOLDERS[form].format(root=root)]
        if form != "flat index":
            lines.append("--no-index")  # It would exclude that index.
        (root / "requirements.txt").write_text("\n".join([*lines, "alpha", "beta"]))
        if form in UV_TOML:
            (root / "uv.toml").write_text(UV_TOML[form].format(links=links))
        self.root = root

    def ensure(self) -> EnsuredImage:
        environ = self.world.project.environ
        dependencies = read_dependencies(self.root / "requirements.txt", environ=environ)
        return self.world.ensure(self.machine, dependencies=dependencies)


@pytest.mark.parametrize("form", FOLDERS)
def test_the_same_wheels_in_folders_with_other_paths_are_the_same_image(
    world: World, form: str
) -> None:
    first = Checkout(world, "one", form).ensure()
    world.project.wheel("alpha", "2.0")

    second = Checkout(world, "two", form).ensure()

    assert (second.reference, second.built_by) == (first.reference, None)
    assert world.project.runs() == 1
    (name,) = [name for name in world.bucket.names() if name.startswith("builds/resolved/")]
    record = world.bucket.read(name)
    assert str(world.project.folder) not in record.decode()

    # Another wheel of the same name: that machine resolves by itself, and nobody else notices.
    other = Checkout(world, "three", form, "alpha")
    assert other.ensure().reference != first.reference
    assert other.ensure().built_by is None
    assert world.project.runs() == 2
    assert world.bucket.read(name) == record
    assert Checkout(world, "four", form).ensure().reference == first.reference


def test_another_checkout_on_this_machine_does_not_use_the_wheels_of_this_one(world: World) -> None:
    first = Checkout(world, "one", "relative")
    second = Checkout(world, "two", "relative", "alpha")
    second.machine = first.machine

    assert first.ensure().reference != second.ensure().reference


class Installing:
    """Installs in a build elsewhere, as docker does: it fails if a file of the recipe cannot be downloaded."""

    name = "docker"

    def __init__(self, world: World) -> None:
        self.layers = world.layers("elsewhere")

    def check(self, recipe: Recipe, image: str) -> None:
        pass

    def obstacle(self, recipe: Recipe) -> str | None:
        return None

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        try:
            return self.layers.build(recipe, image, reports)
        except DownloadError:
            raise BuildError("error: Failed to download") from None


@pytest.mark.parametrize("builder", ["layers", "docker"])
def test_if_a_file_of_a_kept_lock_has_vanished_it_is_resolved_again_once_for_all(
    world: World, builder: str
) -> None:
    new, newer = ({"/app/remote_runner.py": text} for text in (b"new", b"newer"))
    first = world.ensure("one")
    world.ensure("four")
    world.vanish("alpha", "1.0")
    world.project.wheel("alpha", "2.0")
    builders = [Installing(world)] if builder == "docker" else None
    world.reports.clear()

    image = world.ensure("two", builders=builders, files=new)

    assert world.packages(image)["alpha"] == "2.0"
    assert image.recipe.base == first.recipe.base
    (line,) = [line for line in world.reports if "vanished" in line]
    assert "alpha 1.0 (not on 127.0.0.1:" in line
    assert world.project.runs() == 2
    # Others find what was resolved, also those that have kept the lock themselves.
    for machine in ("three", "four"):
        other = world.ensure(machine, builders=builders, files=newer)
        assert world.packages(other) == world.packages(image)
    assert world.project.runs() == 2


def test_a_shared_record_that_another_process_has_replaced_meanwhile_is_taken_over() -> None:
    records = SharedRecords(MemoryStore(), Signer(b"k" * 32))
    records.offer("x", {"lock": "old"})
    old = records.find("x")
    assert records.supersede("x", old, {"lock": "a"})["lock"] == "a"
    assert records.supersede("x", old, {"lock": "b"})["lock"] == "a"
    records.store.write("x", b"damaged")
    assert records.supersede("x", None, {"lock": "c"})["lock"] == "c"
    assert (records.find("x") or {})["lock"] == "c"


@pytest.mark.parametrize("lock", ["requirements.txt", "pylock.toml"])
def test_a_file_that_the_project_itself_pins_is_never_replaced(world: World, lock: str) -> None:
    digest = world.project.wheel("alpha", "1.0")
    if lock == "pylock.toml":
        url = f"{world.project.links}alpha-1.0-py3-none-any.whl"
        (world.project.root / lock).write_text(
            'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "alpha"\nversion = "1.0"\n'
            f'wheels = [{{url = "{url}", hashes = {{sha256 = "{digest}"}}}}]\n'
        )
    else:
        world.project.require(f"alpha==1.0 --hash=sha256:{digest}")
    world.ensure("one")
    world.vanish("alpha", "1.0")
    world.project.wheel("alpha", "2.0")
    place = rf"{re.escape(lock)}:3"

    with pytest.raises(DependencyError, match=rf"{place}: .*alpha-1\.0.* is pinned there"):
        world.ensure("two", files={"/app/remote_runner.py": b"print(2)"})

    record = next(name for name in world.bucket.names() if name.startswith("builds/resolved/"))
    assert "alpha-1.0" in json.loads(world.bucket.read(record))["lock"]


def test_an_index_that_only_fails_changes_nothing(world: World) -> None:
    world.ensure("one")
    world.project.wheel("alpha", "2.0")
    world.unavailable = True
    with pytest.raises(BuildError):
        world.ensure("two", files={"/app/remote_runner.py": b"print(2)"})
    assert world.project.runs() == 1


def test_without_a_shared_bucket_each_machine_resolves_by_itself(world: World) -> None:
    first = world.ensure("one", alone=True)
    second = world.ensure("two", alone=True)
    assert (second.reference, second.built_by) == (first.reference, None)
    assert world.project.runs() == 2


def test_a_change_is_named_before_it_is_built(world: World) -> None:
    world.ensure()
    world.project.wheel("beta", "3.0")
    world.project.require("alpha", "beta")
    world.ensure()
    assert (
        "A new image is needed. Changed since the last one: packages (beta 3.0 added)."
        in world.reports
    )
    world.ensure(files={"/app/remote_runner.py": b"print(2)"})
    assert any("file /app/remote_runner.py" in line for line in world.reports)


class Counting:
    """Builds with layers, and counts; may be slow or fail."""

    name = "counting"

    def __init__(self, world: World, *, failures: int = 0) -> None:
        folder = world.project.folder / "counting"
        self.layers = LayersBuilder(
            world.registry, WheelFiles(folder / "wheels"), folder, processes=1
        )
        self.lock = threading.Lock()
        self.builds = 0
        self.failures = failures
        self.proceed = threading.Event()

    def check(self, recipe: Recipe, image: str) -> None:
        pass

    def obstacle(self, recipe: Recipe) -> str | None:
        return None

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        with self.lock:
            self.builds += 1
            fails = self.builds <= self.failures
        assert self.proceed.wait(30)
        if fails:
            raise BuildError("It does not compile.")
        return self.layers.build(recipe, image, reports)


def test_ten_submits_on_two_machines_build_it_once(world: World) -> None:
    builder = Counting(world)
    with ThreadPoolExecutor(10) as pool:
        futures = [
            pool.submit(world.ensure, f"machine-{number % 2}", builders=[builder])
            for number in range(10)
        ]
        while sum("waiting for it" in line for line in world.reports) < 9:
            assert not any(future.done() for future in futures)
        builder.proceed.set()
        images = [future.result() for future in futures]
    assert builder.builds == 1
    assert len({image.reference for image in images}) == 1
    assert [image.built_by for image in images].count("counting") == 1
    assert not [name for name in world.bucket.names() if name.startswith("builds/claims/")]


def test_if_the_build_fails_the_next_one_who_waits_tries_and_a_record_stays(world: World) -> None:
    builder = Counting(world, failures=1)
    builder.proceed.set()
    with pytest.raises(BuildError, match="does not compile"):
        world.ensure(builders=[builder])
    (name,) = [name for name in world.bucket.names() if name.endswith("build.json")]
    assert "does not compile" in json.loads(world.bucket.read(name))["error"]
    assert world.ensure("two", builders=[builder]).built_by == "counting"
    record = json.loads(world.bucket.read(name))
    assert (record["error"], record["builder"]) == ("", "counting")
    assert "Building" in world.bucket.read(name.replace("build.json", "log.txt")).decode()


def test_a_claim_of_a_killed_process_expires(world: World) -> None:
    recipe = world.ensure(alone=True).recipe
    name = build_claim(recipe.tag)
    world.bucket.write(name, b'{"who": "me@gone"}')
    claims = Claims(world.bucket, "you@here", expiry=0.5)
    waited: list[str] = []
    with claims.held(name, done=lambda: False, waiting=waited.append) as mine:
        assert mine
        with claims.held(name, done=lambda: True, waiting=waited.append) as other:
            assert not other
    assert waited == ["me@gone"]
    assert name not in world.bucket.names()


def test_a_claim_is_renewed_while_it_is_held(world: World) -> None:
    claims = Claims(world.bucket, "me@here", expiry=0.4)
    began = world.bucket.now()

    def later() -> bool:
        return world.bucket.now() - began > 1.2

    with (
        claims.held("builds/claims/x", done=lambda: False, waiting=print),
        claims.held("builds/claims/x", done=later, waiting=lambda _: None) as other,
    ):
        assert not other


def test_a_record_that_somebody_without_the_key_wrote_is_not_used(world: World) -> None:
    first = world.ensure("one")
    (name,) = [name for name in world.bucket.names() if name.startswith("builds/resolved/")]
    record = json.loads(world.bucket.read(name))
    lock = record["lock"].replace("alpha-1.0-py3", "alpha-6.6-py3")
    world.bucket.write(name, json.dumps({**record, "lock": lock}).encode())
    assert world.ensure("two").reference == first.reference
    assert "alpha-1.0-py3" in json.loads(world.bucket.read(name))["lock"]


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
def test_a_record_of_another_form_is_made_again(world: World, change: dict[str, Any]) -> None:
    first = world.ensure("one")
    shared = SharedRecords(world.bucket, world.signer)
    (name,) = [name for name in world.bucket.names() if name.startswith("builds/resolved/")]
    record = shared.find(name) or {}
    shared.offer(name, {**record, **change}, replace=True)
    assert world.ensure("two").reference == first.reference


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, RegistryLoginError),
        (403, RegistryPermissionError),
        (429, RegistryUnavailableError),
        (500, RegistryUnavailableError),
    ],
)
def test_a_registry_that_does_not_say_whether_the_image_exists_is_an_error_and_nothing_is_built(
    world: World, status: int, error: type[RegistryError]
) -> None:
    world.ensure()
    world.server.faults.add(method="HEAD", path="*/manifests/*", status=status, times=None)
    builder = Counting(world)
    with pytest.raises(error):
        world.ensure(builders=[builder])
    assert builder.builds == 0


def uploads(world: World) -> list[str]:
    return [r.path for r in world.server.requests if r.method in ("POST", "PUT", "PATCH")]


def test_a_base_with_another_python_is_refused_before_anything_is_pushed(world: World) -> None:
    base = push_image(
        world.server.host, world.registry, tag="2", Env=["PYTHON_VERSION=3.4.1"], Labels={}
    )
    world.server.requests.clear()
    with pytest.raises(ImageNotFoundError, match=rf"Python 3\.4, .* Python {PYTHON}"):
        world.ensure(base=base)
    assert uploads(world) == []


def test_a_base_that_does_not_say_its_python_is_used_with_a_note(world: World) -> None:
    base = push_image(world.server.host, world.registry, tag="3", Env=[])
    (note,) = world.ensure(base=base).notes
    assert f"{base} does not say which Python it has" in note


def test_labels_of_the_base_say_its_python_and_its_glibc(world: World) -> None:
    labels = {"kinetic.python": PYTHON, "kinetic.glibc": "2.17"}
    base = push_image(world.server.host, world.registry, tag="4", Env=[], Labels=labels)
    project = world.project
    project.wheel("alpha", "2.0", tag=f"cp{PYTHON.replace('.', '')}-abi3-manylinux_2_28_x86_64")
    image = world.ensure(base=base)
    assert image.notes == ()
    assert world.packages(image)["alpha"] == "1.0"


def test_what_has_no_wheel_goes_to_the_next_builder_and_that_is_reported(world: World) -> None:
    world.project.source("beta")
    world.project.require("alpha", "beta")
    layers = LayersBuilder(
        world.registry, WheelFiles(world.project.folder / "w"), world.project.folder / "l"
    )
    with pytest.raises(BuildError, match=r"(?s)beta 1\.0.*KINETIC_IMAGE_BUILDER"):
        world.ensure(builders=[layers])

    class Elsewhere:
        name = "cloud_build"

        def check(self, recipe: Recipe, image: str) -> None:
            pass

        def obstacle(self, recipe: Recipe) -> str | None:
            return None

        def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
            return "sha256:" + "1" * 64

    image = world.ensure(builders=[layers, Elsewhere()])
    assert image.built_by == "cloud_build"
    assert any("beta 1.0" in line and "cloud_build" in line for line in world.reports)


def test_what_kinetic_adds_is_left_out_if_the_project_names_it(world: World) -> None:
    world.project.wheel("debugpy", "1.0")
    world.project.wheel("debugpy", "2.0")
    assert world.packages(world.ensure(additions=("debugpy>=2",)))["debugpy"] == "2.0"
    world.project.require("alpha", "DebugPy<2")
    assert world.packages(world.ensure(additions=("debugpy>=2",)))["debugpy"] == "1.0"
