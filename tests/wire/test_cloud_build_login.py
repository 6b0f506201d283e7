"""Cloud Build over TLS, with the key of a service account as on a user's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinetic_images.builders.cloud_build.service import CloudBuildService
from kinetic_images.builders.cloud_build.settings import CloudBuildSettings
from kinetic_images.errors import BuildServiceLoginError
from kinetic_servers.cloud_build import CloudBuildServer, PythonSteps
from kinetic_servers.gke import GoogleIdentity


def test_a_revoked_login_is_an_error_of_its_own(
    authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = PythonSteps({"tool": lambda step: 0})
    with (
        GoogleIdentity(tmp_path) as identity,
        CloudBuildServer(
            "http://127.0.0.1:9", steps, credentials=authority.credentials()
        ) as server,
    ):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(identity.file))
        settings = CloudBuildSettings(project="test-project", endpoint=server.endpoint)
        with CloudBuildService(settings) as service:
            state = service.create({"steps": [{"name": "tool"}], "tags": ["mark"]})
            found = service.find("mark")
        assert found is not None
        assert found.build_id == state.build_id

        identity.revoke()
        with (
            CloudBuildService(settings) as service,
            pytest.raises(BuildServiceLoginError, match="gcloud auth application-default login"),
        ):
            service.get(state.build_id)
