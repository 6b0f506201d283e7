"""Volumes of a pod that mount buckets; `python tests/kinetic_k8s/manifests/test_volumes.py` records it again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.manifests.volumes import PodVolumes, fuse_volumes
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.stores.store import Location

RECORDED = Path(__file__).with_name("volumes.json")
JOBS = Location("gs", "project-kn-main-jobs")
DIGEST = "0123456789abcdef" * 4


def a_ref(key: str = "d0", **changes: Any) -> DataRef:
    values = {"kind": "gcs", "source": "gs://sets/imgs/", "is_dir": True, "name": "imgs"}
    return DataRef(key=key, **{**values, "fuse": True, **changes})


REFS = (
    a_ref("d0", mount="/data"),
    a_ref("d1", source="gs://sets/models/weights.h5", is_dir=False, name="weights.h5"),
    a_ref("d2", source="gs://whole/", name=""),
    a_ref("d3", source="gs://whole/top.csv", is_dir=False, name="top.csv"),
    a_ref("d4", kind="local", source="./set", digest=DIGEST, mount="/local"),
    a_ref("d5", source="gs://sets/downloaded/", fuse=False),
    a_ref("d6", kind="local", source="./here", local_path="/srv/here"),
)


def volumes_of(*refs: DataRef, jobs: Location = JOBS) -> PodVolumes:
    found = fuse_volumes(refs, jobs)
    assert found is not None
    return found


def as_text() -> str:
    return json.dumps(asdict(volumes_of(*REFS)), indent=2) + "\n"


def test_volumes_are_those_that_were_recorded() -> None:
    assert as_text() == RECORDED.read_text()
    assert fuse_volumes(REFS[5:], JOBS) is None


def test_uploaded_data_is_mounted_from_below_the_prefix_of_the_jobs() -> None:
    (volume,) = volumes_of(REFS[4], jobs=Location("gs", "shared/team/jobs")).volumes

    attributes = volume["csi"]["volumeAttributes"]
    assert attributes["bucketName"] == "shared"
    assert "only-dir=team/jobs/data/" in attributes["mountOptions"]


@pytest.mark.parametrize("directory", ["a,b", "run:1", "a//b", " a", "a\x07"])
def test_folders_that_mount_options_cannot_contain_are_refused(directory: str) -> None:
    source = f"gs://sets/{directory}/"
    with pytest.raises(InvalidRequestError, match="cannot be mounted: its folder has") as raised:
        fuse_volumes([a_ref(source=source)], JOBS)

    assert repr(source) in str(raised.value)
    assert "fuse=True" in (raised.value.hint or "")


def test_data_outside_a_bucket_is_not_mounted() -> None:
    with pytest.raises(InvalidRequestError, match="is not in a bucket"):
        fuse_volumes([a_ref(kind="hf", source="hf://imdb")], JOBS)


if __name__ == "__main__":
    RECORDED.write_text(as_text())
