"""Jobs in images that Kinetic builds, bundled and base, in the test bed's registry. `tests/images` has all builders."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from wheel_maker import make_wheel, small_jax

BUNDLED = """
import kinetic
from pods import small


@kinetic.run("cpu", pod_overrides=small(), memory="512Mi")
def versions():
    import importlib.metadata

    import humanize

    return humanize.__file__, importlib.metadata.version("cloudpickle")


if __name__ == "__main__":
    print(*versions())
"""


def test_jobs_run_in_an_image_with_the_projects_dependencies_that_is_built_once(
    project: Any,
) -> None:
    jax = small_jax(project.root)  # The base image of the other test has the real one.
    requirements = project.root / "requirements.txt"
    requirements.write_text(f"{jax}humanize\n")
    (project.root / "main.py").write_text(textwrap.dedent(BUNDLED))
    project.variables |= {
        "KINETIC_BASE_IMAGE": "127.0.0.1:5000/base/python:3.11",
        "KINETIC_IMAGE_REPO": f"127.0.0.1:5000/{project.namespace}",
    }
    first = project.run("main.py")
    requirements.write_text(f"# a comment\nHumanize\n{jax}")
    again = project.run("main.py")

    assert first.stdout.startswith("/opt/kn/site/humanize/__init__.py "), first.stderr
    assert again.stdout == first.stdout, again.stderr
    assert "Building" in first.stderr
    assert "Building" not in again.stderr


PREBUILT = """
import sys

import kinetic
from pods import small


@kinetic.run("cpu", container_image="prebuilt", pod_overrides=small(), memory="512Mi")
def where():
    import importlib.metadata
    import subprocess

    import demo
    import jax

    again = [sys.executable, "-c", "import demo; print(demo.__file__)"]
    found = subprocess.run(again, check=True, capture_output=True, text=True).stdout.strip()
    return demo.__file__, found, demo.VERSION, importlib.metadata.version("cloudpickle"), jax.__file__


if __name__ == "__main__":
    print(*where())
"""
INSTALLED = "/kinetic/workspace/environment/lib/python3.11/site-packages/demo.py"


def test_a_job_installs_what_a_published_base_image_lacks(project: Any, tmp_path: Path) -> None:
    repository = f"127.0.0.1:5000/{project.namespace}"
    wheels = project.root / "wheels"
    wheels.mkdir()
    make_wheel(wheels, {"demo.py": "VERSION = 1"})
    make_wheel(wheels, {"demo.py": "VERSION = 2"}, version="2.0")
    (project.root / "requirements.txt").write_text("--find-links wheels\ndemo==1.0\n")
    (project.root / "main.py").write_text(textwrap.dedent(PREBUILT))
    project.variables |= {
        "KINETIC_BASE_IMAGE": "127.0.0.1:5000/base/python:3.11",
        "KINETIC_BASE_IMAGE_REPO": repository,
        "KINETIC_NODE_CACHE": str(tmp_path / "node-cache"),
    }
    refused = project.run("main.py")
    assert refused.returncode != 0
    assert f"kinetic build-image --repo {repository} --category cpu" in refused.stderr

    project.kinetic("build-image", "--category", "cpu")
    first = project.run("main.py")
    (project.root / "requirements.txt").write_text("--find-links wheels\ndemo==2.0\n")
    second = project.run("main.py")

    for number, ran in ((1, first), (2, second)):
        assert ran.returncode == 0, ran.stdout + ran.stderr
        print(ran.stdout, ran.stderr)
        found = ran.stdout.splitlines()[-1].split()
        assert found[:3] == [INSTALLED, INSTALLED, str(number)]
        assert found[4].startswith("/opt/kn/site/jax/")
        assert "[uv] Installed 1 package" in ran.stderr
