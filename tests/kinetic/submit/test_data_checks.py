"""What is looked at before anything is uploaded, and who is asked about it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from kinetic.data import Data
from kinetic.errors import DataError, InvalidRequestError, StorePermissionError
from kinetic.submit.data_checks import Worker, check_data
from kinetic_payload.data.bucket import Bucket, BucketObject
from kinetic_payload.data.sources import GcsSource
from kinetic_payload.errors import CredentialsError
from kinetic_runner.data.huggingface import why_unusable
from kinetic_runner.data.mounts import why_not_read_only

HERE = Worker(this_machine=True, this_interpreter=True)
POD = Worker(this_machine=False)


class ABucket:
    """Holds nothing, or refuses to be asked."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal

    def _ask(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def stat(self, name: str) -> BucketObject | None:
        self._ask()
        return None

    def entries(self, prefix: str = "", *, most: int = 1000) -> list[str]:
        self._ask()
        return ["weights.h5"]

    def download(self, name: str, path: Path, *, progress: object = None) -> None:
        raise AssertionError("a look downloads nothing")

    def list(self, prefix: str = "") -> Iterator[BucketObject]:
        self._ask()
        return iter(())


def check(data: Data, worker: Worker, bucket: Bucket | None = None) -> list[str]:
    """Return the warnings."""

    def open_bucket(source: GcsSource) -> Bucket:
        assert bucket is not None, "nothing is to be asked of a bucket"
        return bucket

    warnings: list[str] = []
    check_data(data, worker, warn=warnings.append, open_bucket=open_bucket)
    return warnings


@pytest.mark.parametrize("worker", [HERE, POD])
def test_what_is_missing_in_a_bucket_is_refused_with_what_comes_near(worker: Worker) -> None:
    with pytest.raises(DataError, match=r"gs://sets/weigths\.h5 does not exist") as raised:
        check(Data("gs://sets/weigths.h5"), worker, ABucket())

    assert raised.value.hint == "Did you mean gs://sets/weights.h5?"


@pytest.mark.parametrize("refusal", [StorePermissionError("No."), CredentialsError("Who?")])
def test_what_we_may_not_look_at_is_left_to_the_pod_and_is_final_here(refusal: Exception) -> None:
    data = Data("gs://sets/weights.h5")

    (warning,) = check(data, POD, ABucket(refusal))
    assert str(refusal) in warning
    assert "gs://sets/weights.h5" in warning
    with pytest.raises(DataError, match="cannot be read"):
        check(data, HERE, ABucket(refusal))


def test_a_bucket_is_not_mounted_by_local_jobs_and_the_advice_is_to_download() -> None:
    data = Data("gs://sets/imgs/", fuse=True)

    with pytest.raises(InvalidRequestError, match="local job cannot mount a bucket") as raised:
        check(data, HERE)
    assert "Leave fuse=True out" in (raised.value.hint or "")
    with pytest.raises(DataError, match="does not exist"):
        check(data, POD, ABucket())


def test_local_data_must_be_there_for_any_worker(tmp_path: Path) -> None:
    for fuse in (False, True):
        with pytest.raises(DataError, match="does not exist"):
            check(Data(str(tmp_path / "no"), fuse=fuse), HERE)


def test_local_data_is_shown_in_place_where_the_system_can(tmp_path: Path) -> None:
    data = Data(str(tmp_path), fuse=True)

    assert check(data, POD) == []
    if why_not_read_only() is None:
        assert check(data, HERE) == []
    else:
        with pytest.raises(InvalidRequestError, match="cannot be read in place"):
            check(data, HERE)


def test_the_library_of_data_sets_is_asked_for_where_the_job_has_the_same() -> None:
    data = Data("hf://org/set", hf_trust_remote_code=True)
    try:
        installed = metadata.version("datasets")
    except metadata.PackageNotFoundError:
        installed = None
    expected = why_unusable(data.path, installed, trusts=True)

    assert check(data, POD) == []
    assert check(data, Worker(this_machine=True)) == []
    if expected is not None:
        with pytest.raises(DataError) as raised:
            check(data, HERE)
        assert str(raised.value) == str(expected)


def test_a_library_that_is_missing_or_runs_no_code_is_said_so() -> None:
    missing = why_unusable("hf://imdb", None, trusts=False)
    too_new = why_unusable("hf://imdb", "4.0.0", trusts=True)

    assert missing is not None
    assert "Add 'datasets' to the requirements" in (missing.hint or "")
    assert too_new is not None
    assert "datasets 4.0.0 does not support this" in too_new.message
    assert why_unusable("hf://imdb", "5.2.0", trusts=False) is None
    assert why_unusable("hf://imdb", "3.6.0", trusts=True) is None
