"""Images: layers of wheels against `docker build` and push, and against `tar`, gzip and one upload.

The wheels are downloaded before anything is measured, and docker installs from the same files, with uv, without
an index. Base image and registry are the same, on this machine.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import urllib3
from figures import Budget, Figure
from inputs import MB, write_text
from isal import isal_zlib
from measuring import CLIENTS, Bench, by_name, seconds

from kinetic_images.uv import find_uv

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / ".ci"), str(ROOT / "tests" / "tools")]

from container_programs import (  # noqa: E402
    Engine,
    base_archive,
    find_program,
    push_base,
    running_engine,
    running_registry,
)
from testcloud import VARIABLE, testcloud  # noqa: E402
from tiers import obstacle  # noqa: E402 - what CI asks as well

ENVIRONMENT = ("jax", "keras", "scipy")
SMALL = ("humanize", "toolz", "tabulate", "wrapt", "colorama")
"""One of them is added in each round: what was added once is not new again."""
DOCKER = "docker build, docker push"
DOCKERFILE = """
FROM {base}
COPY requirements.txt /requirements.txt
RUN --mount=type=bind,source=wheels,target=/wheels --mount=type=bind,source=uv,target=/usr/bin/uv \\
    uv pip install -q --system --break-system-packages --no-cache --no-index --find-links /wheels \\
    --compile-bytecode -r /requirements.txt
"""
IMPORT = "import time; began = time.perf_counter(); import jax; print(time.perf_counter() - began)"


def left_out() -> str | None:
    """Return why this group cannot be measured on this machine, or None."""
    if (why := obstacle()) is not None:
        return why
    if sys.version_info[:2] != (3, 11):
        return "the base image has Python 3.11"
    missing = [name for name in ("docker-registry", "dockerd") if find_program(name) is None]
    return f"{' and '.join(missing)} missing (.ci/tiers.py installs them)" if missing else None


def figures(bench: Bench) -> Iterator[Figure]:
    if (why := left_out()) is not None:
        raise SystemExit(f"The group `images` cannot be measured: {why}.")
    os.environ[VARIABLE] = str(testcloud())  # noqa: TID251 - where the base image is
    archive = base_archive()
    assert archive is not None
    registry, dockerd = (find_program(name) for name in ("docker-registry", "dockerd"))
    assert registry is not None
    assert dockerd is not None
    with ExitStack() as running:
        (bench.folder / "registry").mkdir()
        host = running.enter_context(running_registry(registry, bench.folder / "registry"))
        engine = running.enter_context(running_engine(dockerd))
        here = Images(bench, host, engine, push_base(archive, host))
        yield from building(here)
        yield from asking(here)
        yield from importing(here)
        yield from remembering(here)


@dataclass(frozen=True)
class Images:
    """A registry with a base image, docker, and a folder for recipes and wheels."""

    bench: Bench
    host: str
    engine: Engine
    base: str

    def client(self, action: str, **facts: Any) -> Any:
        """Let `clients/building.py` do *action*."""
        folder = self.bench.folder
        given = {
            "base": self.base,
            "home": str(folder / "images"),
            "wheels": str(folder / "wheels"),
        }
        return self.bench.client("building", CLIENTS, action, json.dumps(given | facts))

    def resolve(self, name: str, *requirements: str) -> Recipe:
        """Resolve *requirements* and download their wheels; for docker, put them into a folder."""
        project = self.bench.folder / "projects" / name
        project.mkdir(parents=True)
        (project / "requirements.txt").write_text("\n".join(requirements))
        recipe = self.bench.folder / f"{name}.recipe"
        found = self.client(
            "resolve",
            project=str(project),
            recipe=str(recipe),
            repository=f"{self.host}/kn/resolved",
        )
        context = self.bench.folder / "context"
        (context / "wheels").mkdir(parents=True, exist_ok=True)
        for file in map(Path, found["files"]):
            if not (context / "wheels" / file.name).exists():
                os.link(file, context / "wheels" / file.name)
        return Recipe(project, recipe, "\n".join(found["pins"]))

    def layers(self, recipe: Recipe, repository: str, cache: Path) -> Any:
        """Build *recipe* in layers; the client's findings."""
        return self.client(
            "build",
            recipe=str(recipe.path),
            repository=f"{self.host}/{repository}",
            cache=str(cache),
        )

    def docker(self, recipe: Recipe, image: str, *options: str) -> None:
        """Build and push the same packages with docker."""
        context = self.bench.folder / "context"
        (context / "requirements.txt").write_text(recipe.pins)
        self.docker_build(DOCKERFILE, image, *options)
        self.engine.run("push", f"{self.host}/{image}")

    def docker_build(self, dockerfile: str, image: str, *options: str) -> None:
        context = self.bench.folder / "context"
        (context / "Dockerfile").write_text(dockerfile.format(base=self.base))
        self.engine.environ["DOCKER_BUILDKIT"] = "1"
        self.engine.run("build", *options, "-t", f"{self.host}/{image}", str(context))


@dataclass(frozen=True)
class Recipe:
    """Packages, as a project requires them, as a recipe of layers, and as pins for docker."""

    project: Path
    path: Path
    pins: str


def building(images: Images) -> Iterator[Figure]:
    """An environment of 0.6 GB: cold, and with one small package more."""
    bench, rounds = images.bench, images.bench.rounds(3, quick=1)
    environment = images.resolve("environment", *ENVIRONMENT)
    added = [images.resolve(name, *ENVIRONMENT, name) for name in SMALL[:rounds]]
    shutil.copy(find_uv().program, bench.folder / "context" / "uv")
    tree = bench.folder / "tree"
    install(images, environment, tree)
    # docker has the base and the wheels by now, as we have.
    transfer = "FROM {base}\nRUN --mount=type=bind,source=wheels,target=/wheels true\n"
    images.docker_build(transfer, "kn/transferred")

    cold, docker_cold, floor = [], [], []
    for number in range(rounds):
        cache = bench.folder / f"cache-{number}"
        cold.append(images.layers(environment, f"kn/cold-{number}", cache)["seconds"])
        image = f"docker/cold-{number}"
        docker_cold.append(seconds(partial(images.docker, environment, image, "--no-cache")))
        floor.append(seconds(partial(tar_and_put, tree, images.host, f"floor/{number}")))
    size = sum(each.stat().st_size for each in tree.rglob("*") if each.is_file())
    what = f"image of {', '.join(ENVIRONMENT)} ({size / MB:.0f} MB)"
    yield Figure(
        what=f"{what}, cold",
        samples=cold,
        floor=DOCKER,
        floor_samples=docker_cold,
        budgets=(Budget(11), Budget(3, "speed")),
    )
    yield Figure(
        what=f"{what}, cold, again",
        samples=cold,
        floor="tar | gzip (isal), one PUT",
        floor_samples=floor,
        budgets=(Budget(4, "ratio"),),
    )
    small, docker_small = [], []
    images.docker(environment, "docker/added")
    for recipe in added:
        found = images.layers(recipe, "kn/cold-0", bench.folder / "cache-0")
        small.append(found["seconds"])
        docker_small.append(seconds(partial(images.docker, recipe, "docker/added")))
    yield Figure(
        what="the same with one small package more",
        samples=small,
        floor=DOCKER,
        floor_samples=docker_small,
        budgets=(Budget(2), Budget(20, "speed")),
    )


def install(images: Images, recipe: Recipe, tree: Path) -> None:
    """Install the wheels of *recipe* into the folder *tree*."""
    pins = images.bench.folder / "pins.txt"
    pins.write_text(recipe.pins)
    command = ["pip", "install", "-q", "--no-config", "--no-index", "--compile-bytecode"]
    wheels = images.bench.folder / "context" / "wheels"
    options = ["--find-links", wheels, "--target", tree, "--python", sys.executable, "-r", pins]
    subprocess.run([find_uv().program, *command, *options], check=True)


def tar_and_put(tree: Path, host: str, repository: str) -> None:
    """Upload *tree* as one layer: the least work that leaves its bytes in the registry."""
    packed, sha = tree.with_suffix(".tar.gz"), hashlib.sha256()
    compress = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
    command = ["tar", "-C", str(tree), "-c", "."]
    with packed.open("wb") as file, subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        while data := tar.stdout.read(MB):
            piece = compress.compress(data)
            sha.update(piece)
            file.write(piece)
        piece = compress.flush()
        sha.update(piece)
        file.write(piece)
    url = f"http://{host}/v2/{repository}/blobs/uploads/"
    place = urljoin(url, urllib3.request("POST", url).headers["Location"])
    with packed.open("rb") as file:
        size = {"Content-Length": str(packed.stat().st_size)}
        target = f"{place}{'&' if '?' in place else '?'}digest=sha256:{sha.hexdigest()}"
        stored = urllib3.request("PUT", target, body=file, headers=size)
    assert stored.status == 201, stored.data


def asking(images: Images) -> Iterator[Figure]:
    """Nothing changed: the tag is asked for."""
    found = images.client(
        "unchanged",
        project=str(images.bench.folder / "projects" / "environment"),
        repository=f"{images.host}/kn/cold-0",
        rounds=images.bench.rounds(10),
    )
    rounds = by_name(found["rounds"])
    what = "image that exists, nothing changed"
    yield Figure(what=what, samples=rounds["seconds"], budgets=(Budget(0.05),))
    yield Figure(what="the same, the first of a process", samples=[found["first"]["seconds"]])
    yield Figure(
        what=f"{what}: requests", samples=rounds["requests"], unit="", budgets=(Budget(1),)
    )
    yield Figure(
        what=f"{what}: requests other than HEAD",
        samples=rounds["others"],
        unit="",
        budgets=(Budget(0),),
    )


def importing(images: Images) -> Iterator[Figure]:
    """`import jax` in both images, in containers that are new each time."""
    environment = Recipe(Path(), images.bench.folder / "environment.recipe", "")
    ours = images.layers(environment, "kn/cold-0", images.bench.folder / "cache-0")["reference"]
    theirs = f"{images.host}/docker/cold-0"
    images.engine.run("pull", ours)

    def seconds_in(image: str) -> float:
        return float(images.engine.run("run", "--rm", image, "python3", "-c", IMPORT).stdout)

    found: dict[str, list[float]] = {ours: [], theirs: []}
    for number in range(images.bench.rounds(7) + 1):
        for image, samples in found.items():
            taken = seconds_in(image)
            if number:
                samples.append(taken)
    yield Figure(
        what="import jax in an image of layers",
        samples=found[ours],
        floor="in docker's image",
        floor_samples=found[theirs],
    )


def remembering(images: Images) -> Iterator[Figure]:
    """Memory: builds of a large and of a small wheel with as many files."""
    from kinetic_images.lock.packages import LockedPackage
    from kinetic_images.recipe import Recipe as LayersRecipe
    from kinetic_images.targets import Target

    small, large = 100 * MB, (300 if images.bench.quick else 800) * MB
    peaks = {}
    for size in (small, large):
        path = wheel_of(images.bench.folder / f"wheel-{size}", size)
        package = LockedPackage(
            name="large",
            version="1.0",
            file=path.name,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            address=path.as_uri(),
            size=path.stat().st_size,
        )
        recipe = LayersRecipe(target=Target(python="3.11"), base=images.base, packages=(package,))
        place = images.bench.folder / f"large-{size}.recipe"
        place.write_bytes(pickle.dumps(recipe))
        cache = images.bench.folder / f"cache-large-{size}"
        found = images.layers(Recipe(Path(), place, ""), f"kn/large-{size}", cache)
        peaks[size] = found["peak"]
    yield Figure(
        what=f"peak memory: image of a wheel of {large // MB} MB, all processes together",
        samples=[peaks[large]],
        floor=f"the same for {small // MB} MB",
        floor_samples=[peaks[small]],
        unit="MB",
        budgets=(Budget(1.25, "ratio"),),
    )


def wheel_of(folder: Path, size: int) -> Path:
    """Write a wheel of *size* bytes of text in 100 files."""
    tree = write_text(folder, size, each=size // 100)
    path = folder.with_name(f"{folder.name}-dist") / "large-1.0-py3-none-any.whl"
    path.parent.mkdir()
    info, record = "large-1.0.dist-info", []
    files = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: large\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:

        def add(name: str, data: bytes) -> None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            wheel.writestr(name, data)

        for file in sorted(tree.rglob("*.bin")):
            add(f"large/{file.name}", file.read_bytes())
        for name, data in files.items():
            add(name, data)
        wheel.writestr(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n")
    shutil.rmtree(tree)
    return path
