"""Buckets in another region than the cluster."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic.backends.gke.checks import bucket_of, cluster_region, location_contains, region_warning
from kinetic.errors import BucketNotFoundError
from kinetic.settings.settings import resolve
from kinetic_servers.gcs import GcsServer

CONTEXT = "gke_my-project_us-central1-a_kinetic-cluster"


@pytest.mark.parametrize(
    ("environ", "context", "known", "region"),
    [
        ({}, CONTEXT, None, "us-central1"),
        ({}, "gke_p_europe-west4_c", None, "europe-west4"),
        ({"KINETIC_ZONE": "us-east1-b"}, CONTEXT, None, "us-central1"),
        ({"KINETIC_ZONE": "us-east1-b"}, "mine", None, "us-east1"),
        ({"KINETIC_ZONE": "here"}, "mine", None, None),
        ({}, "mine", None, None),
        ({}, None, None, None),
        ({}, "mine", "northamerica-northeast1-c", "northamerica-northeast1"),
    ],
)
def test_the_region_of_a_cluster_is_known_or_none_but_not_a_default(
    tmp_path: Path,
    environ: dict[str, str],
    context: str | None,
    known: str | None,
    region: str | None,
) -> None:
    assert (
        cluster_region(resolve({}, environ=environ, user_home=tmp_path), context, known) == region
    )


@pytest.mark.parametrize(
    ("place", "regions", "others"),
    [
        ("us-central1", ["us-central1"], ["us-central2"]),
        ("us", ["us-east5"], ["europe-west4"]),
        ("eu", ["europe-west4"], ["europe-west2"]),
        ("asia", ["asia-northeast1"], []),
        ("nam4", ["us-central1"], ["us-east5"]),
        ("eur4", ["europe-west4"], []),
    ],
)
def test_a_multi_region_contains_its_regions(
    place: str, regions: list[str], others: list[str]
) -> None:
    assert [location_contains(place, region) for region in regions] == [True]
    assert not any(location_contains(place, region) for region in others)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    with GcsServer() as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


def test_a_bucket_in_another_region_is_a_warning_after_one_request(server: GcsServer) -> None:
    near, far, both, missing = (f"{name}-{secrets.token_hex(4)}" for name in ("n", "f", "b", "m"))
    server.create_bucket(near, location="US")
    server.create_bucket(far, location="EUROPE-WEST4")
    server.create_bucket(both, location="US", regions=("US-EAST1", "US-WEST1"))

    assert region_warning(near, "us-central1") is None
    with pytest.raises(BucketNotFoundError, match=missing):
        region_warning(missing, "us-central1")
    for _ in range(2):
        warning = region_warning(far, "us-central1")
        assert warning is not None
        assert f"gs://{far} is in europe-west4" in warning
        assert "the cluster is in us-central1" in warning
    assert "us-east1 and us-west1" in (region_warning(both, "us-central1") or "")
    assert region_warning(both, "us-west1") is None
    assert region_warning(far, None) is None
    assert [one.operation for one in server.requests] == ["buckets.get"] * 4
    assert bucket_of(f"gs://{far}/2026/a.jpg") == far
