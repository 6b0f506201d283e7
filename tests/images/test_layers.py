"""Images made of layers, run by docker: what a job finds in them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from wheel_maker import locked, make_wheel

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.layers.builder import LayersBuilder
from kinetic_images.recipe import Recipe
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Target
from kinetic_images.wheel_files import WheelFiles

Run = Callable[..., str]
REPORT = """
import importlib.metadata as m, json, os, sys, wheel, demo
names = [d.metadata["Name"] for d in m.distributions()]
print(json.dumps({
    "shadowed": [wheel.V, m.version("wheel"), m.distribution("wheel").read_text("INSTALLER")],
    "from_pth": getattr(sys, "from_pth", None),
    "first": next(p for p in sys.path if p.startswith("/opt") or p.endswith("-packages")),
    "stdlib": json.__file__.startswith("/usr/lib/python3"),
    "files": all(f.locate().exists() for f in m.files("demo")),
    "cached": os.path.exists(demo.__cached__),
    "modes": [oct(os.stat(p).st_mode)[-4:] for p in ("/tmp", "/usr/local", "/opt", "/app")],
    "runner": oct(os.stat("/app/remote_runner.py").st_mode)[-4:],
    "uid": os.getuid(),
}))
"""


@pytest.fixture(scope="module")
def run(
    engine: Any, debian: str, docker_registry: str, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Build an image, and return what runs a command in it."""
    folder = tmp_path_factory.mktemp("layers")
    demo = {
        "demo/__init__.py": "def main():\n    print('demo runs')\n",
        "demo.pth": "import sys; sys.from_pth = True\n",
        "json.py": "raise SystemExit('not the standard library')\n",
        "demo/large": os.urandom(1_100_000),
    }
    wheels = [
        make_wheel(folder, demo, entry_points="[console_scripts]\ndemo = demo:main\n"),
        # The base has another version of it.
        make_wheel(folder, {"wheel/__init__.py": "V = 'ours'\n"}, name="wheel", version="99.0"),
    ]
    recipe = Recipe(
        target=Target(python="3.11"),
        base=debian,
        packages=tuple(map(locked, wheels)),
        files={"/app/remote_runner.py": b"print('runner')\n"},
    )
    builder = LayersBuilder(Registry(environ={}), WheelFiles(folder / "wheels"), folder / "layers")
    image = f"{docker_registry}/kn/layers"
    digest = builder.build(recipe, f"{image}:{recipe.tag}", BuildReports())
    engine.run("pull", f"{image}@{digest}")

    def run_in_image(*command: str, options: tuple[str, ...] = ()) -> str:
        done = engine.run("run", "--rm", *options, f"{image}@{digest}", *command, check=False)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return str(done.stdout.decode())

    return run_in_image


@pytest.mark.parametrize("isolated", [(), ("-I",)], ids=["", "-I"])
@pytest.mark.parametrize(
    "options",
    [(), ("--read-only", "--user", "12345", "--network", "none")],
    ids=["root", "any user, read-only"],
)
def test_python_finds_the_packages_before_those_of_the_base(
    run: Run, options: tuple[str, ...], isolated: tuple[str, ...]
) -> None:
    assert json.loads(run("python3", *isolated, "-c", REPORT, options=options)) == {
        "shadowed": ["ours", "99.0", "kinetic\n"],
        "from_pth": True,
        "first": "/opt/kn/site",
        "stdlib": True,
        "files": True,
        "cached": sys.version_info[:2] == (3, 11),
        "modes": ["1777", "0755", "0755", "0755"],
        "runner": "0644",
        "uid": 12345 if options else 0,
    }


def test_pip_lists_each_package_once_and_finds_nothing_wrong(run: Run) -> None:
    listed = json.loads(run("python3", "-m", "pip", "list", "--format", "json"))

    assert [each["version"] for each in listed if each["name"] == "wheel"] == ["99.0"]
    assert [each["version"] for each in listed if each["name"] == "demo"] == ["1.0"]
    assert "No broken requirements" in run("python3", "-m", "pip", "check")


def test_programs_are_on_the_path(run: Run) -> None:
    assert run("demo", options=("--read-only", "--user", "12345")) == "demo runs\n"


def test_the_runner_starts_as_on_a_cluster(run: Run) -> None:
    assert run("python3", "-u", "/app/remote_runner.py", options=("--read-only",)) == "runner\n"
