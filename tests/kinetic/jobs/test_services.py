from __future__ import annotations

from pathlib import Path

import pytest

from kinetic.backends.registry import BACKENDS
from kinetic.errors import ConfigurationError, InvalidRequestError, SignatureError
from kinetic.jobs.services import connect, jobs_location
from kinetic.settings.settings import Settings, resolve
from kinetic.target import Target
from kinetic.testing import job_ids_of
from kinetic_payload.stores.store import Location


def settings_of(home: Path) -> Settings:
    return Settings.from_environment(home=str(home))


@pytest.mark.parametrize(
    ("backend", "environ", "expected"),
    [
        ("local", {}, "/me/.kinetic/store"),
        ("local-gke", {}, "/me/.kinetic/store"),
        ("local-pathways", {"KINETIC_HOME": "/big"}, "/big/store"),
        ("local", {"KINETIC_STORE": "/shared/jobs"}, "/shared/jobs"),
        ("local", {"KINETIC_STORE": "file:///shared/jobs"}, "/shared/jobs"),
        ("local", {"KINETIC_STORE": ""}, "/me/.kinetic/store"),
        ("gke", {"KINETIC_PROJECT": "p"}, "gs://p-kn-kinetic-cluster-jobs"),
        ("pathways", {"KINETIC_PROJECT": "p", "KINETIC_CLUSTER": "c"}, "gs://p-kn-c-jobs"),
        ("gke", {"KINETIC_PROJECT": "p", "KINETIC_STORE": "gs://team/jobs"}, "gs://team/jobs"),
    ],
)
def test_every_backend_has_a_store_and_a_named_one_serves_all(
    backend: str, environ: dict[str, str], expected: str
) -> None:
    settings = resolve({}, environ=environ, user_home=Path("/me"))

    assert str(jobs_location(settings, backend)) == expected


def test_without_a_store_or_a_project_the_bucket_of_a_cluster_is_not_guessed() -> None:
    settings = resolve({}, environ={"KINETIC_KUBE_CONTEXT": "mine"}, user_home=Path("/me"))

    with pytest.raises(ConfigurationError, match="neither a store nor a project") as caught:
        jobs_location(settings, "gke")
    assert "KINETIC_STORE" in str(caught.value)


@pytest.mark.parametrize(
    "backend", [name for name, entry in BACKENDS.items() if entry.on_this_machine]
)
def test_local_backends_work_over_the_store_they_are_given(tmp_path: Path, backend: str) -> None:
    location = Location("folder", str(tmp_path / "shared"))

    services = connect(backend, Target(), location, settings_of(tmp_path / "home"))

    assert services.store.location == location
    assert job_ids_of(services.backend) == []
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("backend", ["gke", "pathways", "slurm", ""])
def test_a_backend_that_this_version_has_not_is_refused(tmp_path: Path, backend: str) -> None:
    with pytest.raises(InvalidRequestError, match=repr(backend)) as caught:
        connect(
            backend, Target(), Location("folder", str(tmp_path / "store")), settings_of(tmp_path)
        )

    assert "KINETIC_BACKEND=local" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_records_are_signed_where_others_can_write_and_nowhere_else(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    folder = connect("local", Target(), Location("folder", str(tmp_path / "shared")), settings)
    assert folder.key_signer is None
    assert folder.sign(b"{}", "j/outcome.json") == b"{}"
    folder.verify(b"{}", "j/outcome.json")

    bucket = connect("local", Target(), Location("gs", "team/jobs"), settings)
    assert str(bucket.store.location) == "gs://team/jobs"
    assert not (tmp_path / "home").exists()
    bucket.verify(bucket.sign(b"{}", "j/outcome.json"), "j/outcome.json")
    with pytest.raises(SignatureError):
        bucket.verify(b"{}", "j/outcome.json")


def test_a_bucket_can_be_trusted_after_it_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = connect("local", Target(), Location("gs", "team"), settings_of(tmp_path))
    with pytest.raises(SignatureError):
        services.verify(b"{}", "j/outcome.json")

    monkeypatch.setenv("KINETIC_TRUST_BUCKET", "1")

    services.verify(b"{}", "j/outcome.json")
