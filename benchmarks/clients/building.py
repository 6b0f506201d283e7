"""A process that builds an image of layers, or makes sure that one exists; it reports time, memory and requests."""

import json
import os
import pickle
import resource
import sys
import time
from pathlib import Path

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.dependencies import find_dependencies
from kinetic_images.ensure import EnsuredImage, ImageRequest, ImageServices, ensure_image
from kinetic_images.recipe import RUNNER_PATH
from kinetic_images.registry.registry import Registry
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.threads import cores

FOUND, CLIENTS, ACTION, GIVEN = sys.argv[1:5]
"""The file of the findings, the folder of clients, what to do, and facts as JSON."""

sys.path.append(CLIENTS)
from memory import peak  # noqa: E402
from sent import record  # noqa: E402

given = json.loads(GIVEN)


class NoBuilder:
    """Stands for a builder where only the recipe is of interest, or where nothing may be built."""

    name = "none"

    def obstacle(self, recipe):
        return None

    def check(self, recipe, image):
        return None

    def build(self, recipe, image, reports):
        return f"sha256:{'0' * 64}"


def ensure(registry: Registry, builders) -> EnsuredImage:
    environ = dict(os.environ)  # noqa: TID251
    request = ImageRequest(
        dependencies=find_dependencies(Path(given["project"]), environ=environ),
        category="cpu",
        python="{}.{}".format(*sys.version_info),
        base=given["base"],
        repository=given["repository"],
        files={RUNNER_PATH: b"print('runner')\n"},
    )
    services = ImageServices(
        home=Path(given["home"]), registry=registry, builders=builders, environ=environ
    )
    return ensure_image(request, services)


def resolve():
    """Write the recipe of a project, and download its wheels."""
    recipe = ensure(Registry(environ={}), lambda: [NoBuilder()]).recipe
    wheels = WheelFiles(Path(given["wheels"]))
    files = [str(wheels.get(package)) for package in recipe.packages]
    Path(given["recipe"]).write_bytes(pickle.dumps(recipe))
    pins = [f"{package.name}=={package.version}" for package in recipe.packages]
    return {"tag": recipe.tag, "files": files, "pins": pins}


def build():
    """Build a recipe in layers, with wheels that were downloaded before."""
    recipe = pickle.loads(Path(given["recipe"]).read_bytes())
    began = time.perf_counter()
    builder = LayersBuilder(
        Registry(environ={}), WheelFiles(Path(given["wheels"])), Path(given["cache"])
    )
    image = f"{given['repository']}:{recipe.tag}"
    digest = builder.build(recipe, image, BuildReports())
    of_one_worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "seconds": time.perf_counter() - began,
        "peak": peak() + cores() * of_one_worker * 1024 / 1e6,
        "reference": f"{given['repository']}@{digest}",
    }


def unchanged():
    """Make sure again and again that an image exists, which does."""
    registry = Registry(environ={})
    sent = record()

    def nothing():
        raise SystemExit("There is something to build.")

    def one_round():
        sent.clear()
        began = time.perf_counter()
        ensure(registry, nothing)
        return {
            "seconds": time.perf_counter() - began,
            "requests": len(sent),
            "others": sum(each.method != "HEAD" for each in sent),
        }

    # The first round also imports the modules that this needs, and connects.
    return {"first": one_round(), "rounds": [one_round() for _ in range(given["rounds"])]}


if __name__ == "__main__":
    found = {"resolve": resolve, "build": build, "unchanged": unchanged}[ACTION]()
    Path(FOUND).write_text(json.dumps(found))
