from __future__ import annotations

import time
from pathlib import Path

import pytest

from kinetic_images.errors import RegistryLoginError, RegistryUnavailableError
from kinetic_images.registry.credentials import google_login

pytest.importorskip("cryptography", reason="it needs kinetic-servers")
VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


def test_the_key_file_that_the_environment_names_gives_tokens(tmp_path: Path) -> None:
    # A sibling of this package, which is not there when its tests run alone.
    identity = pytest.importorskip("kinetic_servers.gke.google_identity")

    with identity.GoogleIdentity(tmp_path) as google:
        environ = {VARIABLE: str(google.file)}
        first, second = google_login(environ), google_login(environ)

        assert first is not None
        assert second is not None
        assert [first.token, second.token] == google.issued
        assert first.renew_at is not None
        assert 3000 < first.renew_at - time.time() < 3600
        assert first.token not in repr(first)
        google.revoke()
        with pytest.raises(RegistryLoginError, match="Invalid JWT Signature"):
            google_login(environ)
    with pytest.raises(RegistryUnavailableError, match="did not respond"):
        google_login(environ)


def test_a_key_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    for name, content in (("none", None), ("broken", "{"), ("other", "{}")):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(RegistryLoginError) as caught:
            google_login({VARIABLE: str(tmp_path / name)})
        assert VARIABLE in (caught.value.hint or "")
        assert "gcloud auth application-default login" in (caught.value.hint or "")


def test_without_credentials_on_this_machine_there_is_no_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")

    assert google_login({}) is None
