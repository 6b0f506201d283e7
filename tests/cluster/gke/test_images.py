"""Jobs in images that Kinetic builds: the dependencies of the project become layers in the test bed's registry."""

from __future__ import annotations

import textwrap
from typing import Any

SCRIPT = """
import sys

import kinetic
from pods import small


@kinetic.run("cpu", pod_overrides=small(), memory="512Mi")
def versions():
    import importlib.metadata

    import humanize
    import jax

    return humanize.__file__, jax.__version__, importlib.metadata.version("cloudpickle")


if __name__ == "__main__":
    print(*versions())
"""


def test_a_job_runs_with_the_projects_dependencies_in_an_image_that_is_built_once(
    project: Any,
) -> None:
    (project.root / "requirements.txt").write_text("humanize\n")
    project.variables |= {
        "KINETIC_IMAGE_REPO": "127.0.0.1:5000/kn",
        "KINETIC_BASE_IMAGE": "127.0.0.1:5000/base/python:3.11",
        "KINETIC_BUILDS_STORE": "gs://jobs",
    }
    (project.root / "main.py").write_text(textwrap.dedent(SCRIPT))
    first = project.run("main.py")
    assert first.returncode == 0, first.stdout + first.stderr
    print(first.stdout, first.stderr)
    assert first.stdout.startswith("/opt/kn/site/humanize/__init__.py ")
    (project.root / "requirements.txt").write_text("# a comment\nHumanize\n")
    second = project.run("main.py")
    print(second.stdout, second.stderr)
    assert second.stdout == first.stdout
