"""Volumes of a pod that mount buckets; `python tests/kinetic_k8s/manifests/test_volumes.py` records it again."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.manifests.volumes import (
    FuseMount,
    FuseSettings,
    fuse_mounts,
    fuse_volume,
    fuse_volumes,
)
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.stores.store import Location

RECORDED = Path(__file__).with_name("volumes.json")
JOBS = Location("gs", "project-kn-main-jobs")
DIGEST = "0123456789abcdef" * 4


def a_ref(key: str = "d0", **changes: Any) -> DataRef:
    values = {"kind": "gcs", "source": "gs://sets/imgs/", "is_dir": True, "name": "imgs"}
    return DataRef(key=key, **{**values, "fuse": True, **changes})


def a_mount(**changes: Any) -> FuseMount:
    return replace(FuseMount(name="data-d0", bucket="sets", directory="imgs", path="/d"), **changes)


REFS = (
    a_ref("d0", mount="/data"),
    a_ref("d1", source="gs://sets/models/weights.h5", is_dir=False, name="weights.h5"),
    a_ref("d2", source="gs://whole/", name=""),
    a_ref("d3", source="gs://whole/top.csv", is_dir=False, name="top.csv"),
    a_ref("d4", kind="local", source="./set", digest=DIGEST, mount="/local"),
    a_ref("d5", source="gs://sets/downloaded/", fuse=False),
    a_ref("d6", kind="local", source="./here", local_path="/srv/here"),
)
EVERYTHING = FuseSettings(
    metadata_ttl=60,
    file_cache="20Gi",
    uid=1000,
    gid=2000,
    options=("max-conns-per-host=100", "file-cache:enable-parallel-downloads:true"),
    identity_provider="https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
    cpu_request="500m",
    memory_limit="1Gi",
    ephemeral_storage_limit="0",
)


def rendered() -> dict[str, Any]:
    mounts = fuse_mounts(REFS, JOBS)
    below = fuse_mounts(REFS[4:5], Location("gs", "shared/team/jobs"), executable=True)
    return {
        "defaults": asdict(fuse_volumes(mounts)),
        "everything": asdict(fuse_volumes((*mounts[:1], *below), EVERYTHING)),
        "nothing": asdict(fuse_volumes(())),
    }


def as_text() -> str:
    return json.dumps(rendered(), indent=2) + "\n"


def test_volumes_are_those_that_were_recorded() -> None:
    assert as_text() == RECORDED.read_text()


def test_the_driver_is_given_strings_and_nothing_else() -> None:
    for case in rendered().values():
        for volume in case["volumes"]:
            assert {type(value) for value in volume["csi"]["volumeAttributes"].values()} == {str}
            assert volume["csi"]["readOnly"] is True
        assert {type(value) for value in case["annotations"].values()} <= {str}
        named = {volume["name"] for volume in case["volumes"]}
        assert {mount["name"] for mount in case["volume_mounts"]} == named
        assert len(case["volumes"]) == len(named)


def test_a_single_object_is_mounted_as_its_folder() -> None:
    ref = a_ref(source="gs://sets/models/weights.h5", is_dir=False, name="weights.h5", mount="/m")

    (mount,) = fuse_mounts([ref], JOBS)

    assert (mount.directory, mount.path) == ("models", "/m")


def test_the_pod_mounts_where_the_runner_looks() -> None:
    refs = [a_ref("d0"), a_ref("d1", mount="/data")]

    assert [mount.path for mount in fuse_mounts(refs, JOBS)] == [ref.mounted_at for ref in refs]


def test_one_folder_at_two_paths_is_one_volume() -> None:
    volumes = fuse_volumes([a_mount(), a_mount(name="data-d1", path="/e")])

    assert [volume["name"] for volume in volumes.volumes] == ["data-d0"]
    assert [(one["name"], one["mountPath"]) for one in volumes.volume_mounts] == [
        ("data-d0", "/d"),
        ("data-d0", "/e"),
    ]


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("a,b", "comma"),
        ("run:1", "colon"),
        ("line\nbreak", "printed"),
        ("a//b", "empty part"),
        ("../a", "'..'"),
        (" a", "space"),
        ("a/", "empty part"),
    ],
)
def test_folders_that_mount_options_cannot_contain_are_refused(directory: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as raised:
        fuse_volumes([a_mount(directory=directory)])

    assert "fuse=True" in (raised.value.hint or "")


def test_a_source_that_cannot_be_mounted_is_refused_by_its_name() -> None:
    for source in ("gs://sets/run:1/", "gs://sets/a,b/x.h5", "gs://sets/a//b/"):
        with pytest.raises(InvalidRequestError, match=f"'{source}' cannot be mounted"):
            fuse_mounts([a_ref(source=source, is_dir=source.endswith("/"))], JOBS)


@pytest.mark.parametrize(
    "option",
    ["config-file=/x", "key-file", "o=allow_other", "log-format=text", "implicit-dirs", "only-dir=x",
     "a,b", "", " a", "uid=0", "cache-dir:/x", "line\nbreak"],
)  # fmt: skip
def test_mount_options_of_kinetic_or_of_other_programs_are_refused(option: str) -> None:
    with pytest.raises(InvalidRequestError):
        FuseSettings(options=(option,))


def test_invalid_amounts_and_times_are_refused() -> None:
    for settings in ({"file_cache": "much"}, {"memory_limit": "-1"}, {"metadata_ttl": -2}):
        with pytest.raises(InvalidRequestError):
            FuseSettings(**settings)
    for text in ("500K", "٢٠Gi", "20 Gi", "mi", "20mi"):
        with pytest.raises(InvalidRequestError, match="memory_limit="):
            FuseSettings(memory_limit=text)
    with pytest.raises(InvalidRequestError, match="'500k' or '500Ki'"):
        FuseSettings(file_cache="500K")
    assert FuseSettings(file_cache="1e9", cpu_request=".5", memory_limit="1Pi").file_cache == "1e9"


@pytest.mark.parametrize(
    ("mounts", "why"),
    [
        ([a_mount(), a_mount(path="/e", directory="x")], "Two volumes have the name"),
        ([a_mount(), a_mount(name="data-d1", directory="x")], "Two volumes have the mount path /d"),
        ([a_mount(name="Data_1")], "cannot be the name of a volume"),
        ([a_mount(name="d" * 64)], "cannot be the name of a volume"),
        ([a_mount(path="relative")], "cannot be the mount path"),
        ([a_mount(path="/a:b")], "cannot be the mount path"),
    ],
)
def test_names_and_paths_are_valid_and_distinct(mounts: list[FuseMount], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        fuse_volumes(mounts)


def test_data_outside_a_bucket_is_not_mounted() -> None:
    with pytest.raises(InvalidRequestError, match="is not in a bucket"):
        fuse_mounts([a_ref(kind="hf", source="hf://imdb")], JOBS)


def test_metadata_of_unchanging_data_is_cached_for_ever() -> None:
    ours = fuse_volume(a_mount(unchanging=True))
    theirs = fuse_volume(a_mount())

    assert ours["csi"]["volumeAttributes"]["metadataCacheTTLSeconds"] == "-1"
    assert theirs["csi"]["volumeAttributes"]["metadataCacheTTLSeconds"] == "600"


if __name__ == "__main__":
    RECORDED.write_text(as_text())
