"""A project of Google Cloud: whose quota is used, lost connections, and which role has a permission."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials

from kinetic.errors import CloudUnavailableError
from kinetic.provisioning.google.cloud import Cloud, role_with
from kinetic.provisioning.google.networks import Compute


@pytest.mark.parametrize("own", [None, "another-project"])
def test_a_persons_credentials_name_a_project_for_their_quota(
    own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "login.json"
    login = {
        "type": "authorized_user",
        "client_id": "c",
        "client_secret": "s",
        "refresh_token": "r",
    }
    file.write_text(json.dumps({**login, **({"quota_project_id": own} if own else {})}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert Cloud("my-project").credentials.quota_project_id == (own or "my-project")


def test_a_lost_connection_is_an_error_of_ours() -> None:
    nobody = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": "http://127.0.0.1:1/compute/v1/"}
    cloud = Cloud("my-project", nobody, patience=0)
    cloud.credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    with pytest.raises(CloudUnavailableError, match="Could not list the zones"):
        Compute(cloud).get("list the zones", "zones")


def test_what_takes_too_long_is_an_error() -> None:
    cloud = Cloud("my-project", poll=0.001)
    with pytest.raises(CloudUnavailableError, match="still RECONCILING after 0 minutes"):
        cloud.wait(lambda: False, lambda: "The cluster is still RECONCILING", 0.01)


@pytest.mark.parametrize("read", [True, False])
def test_calls_that_came_too_fast_are_repeated(read: bool) -> None:
    cloud = Cloud("my-project", poll=0.001)
    answers = iter([exceptions.TooManyRequests("RATE_LIMIT_EXCEEDED")])

    def call() -> str:
        for error in answers:
            raise error
        return "done"

    assert (cloud.ask if read else cloud.change)("do it", call) == "done"


@pytest.mark.parametrize(
    ("permission", "role"),
    [
        ("cloudquotas.quotas.get", "roles/cloudquotas.viewer"),
        ("compute.firewalls.delete", "roles/compute.securityAdmin"),
        ("compute.networks.delete", "roles/compute.networkAdmin"),
        ("iam.serviceAccounts.actAs", "roles/iam.serviceAccountUser"),
        ("iam.serviceAccounts.create", "roles/iam.serviceAccountAdmin"),
    ],
)
def test_the_role_that_is_proposed_has_the_permission(permission: str, role: str) -> None:
    assert role_with(permission) == role
