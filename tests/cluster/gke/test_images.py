"""Jobs in images that Kinetic builds: bundled ones of each builder, and a base image, in the test bed's registry."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from container_programs import DOCKER, Engine
from wheel_maker import make_wheel

from kinetic_servers.cloud_build import CloudBuildServer, DockerSteps

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
LIKE_JAX = "--find-links wheels\njax==1.0  # kn:keep\n"
"""A small wheel in the place of JAX, which is in the base image of the other test."""


def test_jobs_run_with_the_projects_dependencies_in_images_of_all_builders_each_built_once(
    project: Any, engine: Engine, trusting_base: str, warm: Callable[[Path], Path], tmp_path: Path
) -> None:
    (project.root / "wheels").mkdir()
    make_wheel(project.root / "wheels", {"jax.py": ""}, name="jax")
    requirements = project.root / "requirements.txt"
    requirements.write_text(f"{LIKE_JAX}humanize\n")
    (project.root / "main.py").write_text(textwrap.dedent(BUNDLED))
    project.variables |= {
        "KINETIC_BASE_IMAGE": trusting_base,
        "KINETIC_BUILDS_STORE": "gs://jobs",
        "PATH": f"{Path(DOCKER).parent}:{project.environment['PATH']}",
        **{name: engine.environ[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")},
    }

    def built_by(name: str, **more: str) -> dict[str, str]:
        repository = f"127.0.0.1:5000/{project.namespace}/{name}"
        return {"KINETIC_IMAGE_BUILDER": name, "KINETIC_IMAGE_REPO": repository, **more}

    steps = DockerSteps(DOCKER, engine.environ)
    with CloudBuildServer(project.bucket.endpoint, steps, project="test-project") as builds:
        builds.accounts.add("kn-ours-builds@test-project.iam.gserviceaccount.com")
        in_cloud = built_by(
            "cloud_build",
            CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD=builds.endpoint,
            KINETIC_PROJECT="test-project",
            KINETIC_ZONE="us-central1-a",
            KINETIC_CLUSTER="ours",
        )
        on_another_machine = {**in_cloud, "KINETIC_HOME": str(warm(tmp_path / "other"))}
        settings = (built_by("layers"), built_by("docker"), in_cloud, on_another_machine)
        started = [project.start("main.py", environment=each) for each in settings]
        requested = [(*process.communicate(), process.returncode) for process in started]
    for out, err, code in requested:
        assert code == 0, out + err
        assert out.startswith("/opt/kn/site/humanize/__init__.py "), out + err
    assert len({out for out, _, _ in requested}) == 1
    assert len(builds.builds) == 1

    requirements.write_text(f"# a comment\nHumanize\n{LIKE_JAX}")
    again = project.run("main.py", **built_by("layers"))
    assert again.stdout == requested[0][0], again.stderr
    assert "Building" in requested[0][1]
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
