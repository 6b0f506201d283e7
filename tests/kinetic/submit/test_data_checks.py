"""Checks of data before anything is uploaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Self

import pytest

from kinetic.data import Data
from kinetic.errors import DataError, InvalidRequestError, StorePermissionError
from kinetic.submit.data_checks import check_data
from kinetic.submit.request import JobRequest
from kinetic_payload.data.sources import GcsSource
from kinetic_payload.errors import CredentialsError
from kinetic_payload.stores.gcs import BucketObject
from kinetic_payload.stores.outages import OutageLimit
from kinetic_runner.data.huggingface import why_unusable
from kinetic_runner.data.mounts import why_not_read_only
from kinetic_servers.fakes import a_request

HERE = a_request()
POD = replace(a_request(), backend="gke")


class ABucket:
    """A bucket that has nothing at the path in question, or refuses every request."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal

    def limited(self, limit: OutageLimit) -> Self:
        return self

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def stat(self, name: str) -> BucketObject | None:
        self._check()
        return None

    def entries(self, prefix: str = "", *, most: int = 1000) -> list[str]:
        self._check()
        return ["weights.h5"]

    def download(self, name: str, path: Path, *, progress: object = None) -> None:
        raise AssertionError("a check downloads nothing")

    def list(self, prefix: str = "") -> Iterator[BucketObject]:
        self._check()
        return iter(())


def check(data: Data, worker: JobRequest, bucket: ABucket | None = None) -> list[str]:
    """Return the warnings."""

    def open_bucket(source: GcsSource) -> ABucket:
        assert bucket is not None, "no request to a bucket is expected"
        return bucket

    warnings: list[str] = []
    check_data(data, worker, OutageLimit(1), warn=warnings.append, open_bucket=open_bucket)
    return warnings


@pytest.mark.parametrize("worker", [HERE, POD])
def test_a_missing_object_of_a_bucket_is_refused_with_similar_names(worker: JobRequest) -> None:
    with pytest.raises(DataError, match=r"gs://sets/weigths\.h5 does not exist") as raised:
        check(Data("gs://sets/weigths.h5"), worker, ABucket())

    assert raised.value.hint == "Did you mean gs://sets/weights.h5?"


@pytest.mark.parametrize("refusal", [StorePermissionError("No."), CredentialsError("Who?")])
def test_a_bucket_without_permission_is_a_warning_for_a_pod_and_an_error_here(
    refusal: Exception,
) -> None:
    data = Data("gs://sets/weights.h5")

    (warning,) = check(data, POD, ABucket(refusal))
    assert str(refusal) in warning
    assert "gs://sets/weights.h5" in warning
    with pytest.raises(DataError, match="cannot be read"):
        check(data, HERE, ABucket(refusal))


def test_a_local_job_cannot_mount_a_bucket(tmp_path: Path) -> None:
    data = Data("gs://sets/imgs/", fuse=True)

    with pytest.raises(InvalidRequestError, match="local job cannot mount a bucket") as raised:
        check(data, HERE)
    assert "Leave fuse=True out" in (raised.value.hint or "")
    with pytest.raises(DataError, match="does not exist"):
        check(data, POD, ABucket())


def test_local_data_must_exist_and_is_read_in_place_if_the_system_can(tmp_path: Path) -> None:
    for fuse in (False, True):
        with pytest.raises(DataError, match="does not exist"):
            check(Data(str(tmp_path / "no"), fuse=fuse), HERE)
    data = Data(str(tmp_path), fuse=True)
    assert check(data, POD) == []
    if why_not_read_only() is None:
        assert check(data, HERE) == []
    else:
        with pytest.raises(InvalidRequestError, match="cannot be read in place"):
            check(data, HERE)


def test_the_library_of_data_sets_is_required_if_the_job_uses_this_interpreter() -> None:
    data = Data("hf://org/set", hf_trust_remote_code=True)
    try:
        installed = metadata.version("datasets")
    except metadata.PackageNotFoundError:
        installed = None
    expected = why_unusable(data.path, installed, trusts=True)

    assert check(data, POD) == []
    assert check(data, a_request(container_image="bundled")) == []
    if expected is not None:
        with pytest.raises(DataError) as raised:
            check(data, HERE)
        assert str(raised.value) == str(expected)


@pytest.mark.parametrize(
    ("version", "trusts", "message"),
    [
        (None, False, "Add 'datasets' to the requirements"),
        ("4.0.0", True, "datasets 4.0.0 does not support this"),
        ("5.2.0", False, None),
        ("3.6.0", True, None),
    ],
)
def test_a_library_that_is_missing_or_too_new_for_remote_code_is_unusable(
    version: str | None, trusts: bool, message: str | None
) -> None:
    found = why_unusable("hf://imdb", version, trusts=trusts)

    assert (message in str(found)) if message else (found is None)
