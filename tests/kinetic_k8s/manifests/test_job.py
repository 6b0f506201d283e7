"""A Job's manifest, against its record and the schemas of Kubernetes.

`python tests/kinetic_k8s/manifests/test_job.py` records it again.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.manifests.job import JobSpec, job_manifest
from kinetic_k8s.manifests.pod import MountedFile, PodSpec, Resources, SecretVariable
from kinetic_k8s.manifests.volumes import fuse_volumes
from kinetic_payload.data.references import DataRef
from kinetic_payload.stores.store import Location

RECORDED = Path(__file__).with_name("jobs.json")
JOB_ID = "gpu-l4-train-20261122-101500-0a1b2c3"
DIGEST = "0123456789abcdef" * 4

SMALL = JobSpec(
    name="kn-train-0a1b2c3",
    pod=PodSpec(
        job_id=JOB_ID,
        accelerator=parse_accelerator("cpu"),
        image="python:3.11",
        command=("python3", "train.py"),
    ),
)
SETS = DataRef(
    key="d0", kind="gcs", source="gs://sets/", is_dir=True, name="", fuse=True, mount="/data"
)
FULL = JobSpec(
    name="kn-train-0a1b2c3",
    retries=3,
    keep_for=timedelta(hours=1),
    suspended=True,
    pod=PodSpec(
        job_id=JOB_ID,
        accelerator=parse_accelerator("l4x2:spot"),
        image=f"europe-docker.pkg.dev/p/kn/bundled@sha256:{DIGEST}",
        command=("python3", "-u", "/app/remote_runner.py", "--job", JOB_ID),
        environment={"KERAS_BACKEND": "jax", "PRICE": "5$(each)"},
        environment_secret="kn-train-0a1b2c3-env",
        secret_variables=(
            SecretVariable(variable="KINETIC_SIGNING_KEY", secret="kinetic-key", key="key"),
        ),
        files=(
            MountedFile(config_map="kn-runner-0123", key="runner.py", path="/app/remote_runner.py"),
        ),
        resources=Resources(cpu="4", memory="16Gi", shared_memory="8Gi"),
        grace=timedelta(minutes=1),
        service_account="kinetic",
        volumes=fuse_volumes([SETS], Location("gs", "jobs")),
        labels={"team": "vision", "kueue.x-k8s.io/queue-name": "research"},
        about={"function": "train", "source": "train:main.<locals>.step"},
    ),
)


def rendered() -> dict[str, Any]:
    return {"small": job_manifest(SMALL), "full": job_manifest(FULL)}


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    return found


def test_manifests_are_those_that_were_recorded() -> None:
    assert rendered() == json.loads(RECORDED.read_text())


@pytest.mark.parametrize("version", ["1.33", "1.34", "1.35", "1.37"])
def test_the_schemas_of_several_versions_accept_both(version: str) -> None:
    for manifest in rendered().values():
        kubernetes_validate.validate(manifest, version, strict=True)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(rendered(), indent=1) + "\n")
