from __future__ import annotations

from pathlib import Path

import pytest

from kinetic.errors import ConfigurationError, SignatureError
from kinetic.jobs.services import connect, jobs_location
from kinetic.settings.settings import Settings, resolve
from kinetic.target import Target
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
def test_a_store_is_that_of_the_backend_unless_one_is_named(
    backend: str, environ: dict[str, str], expected: str
) -> None:
    settings = resolve({}, environ=environ, user_home=Path("/me"))

    assert str(jobs_location(settings, backend)) == expected


def test_without_a_store_or_a_project_the_bucket_of_a_cluster_is_unknown() -> None:
    settings = resolve({}, environ={"KINETIC_KUBE_CONTEXT": "mine"}, user_home=Path("/me"))

    with pytest.raises(ConfigurationError, match="neither a store nor a project") as caught:
        jobs_location(settings, "gke")
    assert "KINETIC_STORE" in str(caught.value)


def test_records_are_signed_in_a_bucket_unless_it_is_trusted_and_not_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path / "home")
    folder = connect("local", Target(), Location("folder", str(tmp_path / "shared")), settings)
    assert str(folder.store.location) == str(tmp_path / "shared")
    assert folder.key_signer is None
    assert folder.sign(b"{}", "j/outcome.json") == b"{}"
    folder.verify(b"{}", "j/outcome.json")

    bucket = connect("local", Target(), Location("gs", "team/jobs"), settings)
    assert str(bucket.store.location) == "gs://team/jobs"
    assert not (tmp_path / "home").exists()
    bucket.verify(bucket.sign(b"{}", "j/outcome.json"), "j/outcome.json")
    with pytest.raises(SignatureError):
        bucket.verify(b"{}", "j/outcome.json")
    monkeypatch.setenv("KINETIC_TRUST_BUCKET", "1")
    bucket.verify(b"{}", "j/outcome.json")
