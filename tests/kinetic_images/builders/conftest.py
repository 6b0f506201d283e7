"""What the tests of builders share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parent))

from building import Cloud, Images, successful

from kinetic_images.builders.cloud_build import CloudBuildBuilder, CloudBuildSettings
from kinetic_payload.stores.gcs import GcsStore
from kinetic_servers.cloud_build import CloudBuildServer, PythonSteps, Step
from kinetic_servers.gcs import GcsServer


@pytest.fixture
def small_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stub in place of the program uv, of which each context has a copy: to pack 40 MB takes seconds."""
    program = tmp_path / "uv"
    program.write_bytes(b"uv")
    monkeypatch.setitem(sys.modules, "uv", SimpleNamespace(find_uv_bin=lambda: str(program)))


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, small_uv: None) -> Iterator[Cloud]:
    """A Cloud Build whose docker step is a Python function."""
    program: list[Callable[[Step], int]] = [successful]
    names = ("gcr.io/cloud-builders/docker", "gcr.io/cloud-builders/gcloud")
    steps = PythonSteps(dict.fromkeys(names, lambda step: program[-1](step)))
    with GcsServer() as buckets, CloudBuildServer(buckets.endpoint, steps) as builds:
        for name, value in buckets.environment.items():
            monkeypatch.setenv(name, value)
        buckets.create_bucket("builds")
        images, lines = Images(steps.pushed), list[str]()
        settings = CloudBuildSettings(project="test-project", endpoint=builds.endpoint)
        builder = CloudBuildBuilder(
            settings=settings, store=GcsStore("builds/team"), registries=images
        )
        yield Cloud(builds, buckets, builder, steps, images, lines, program)
