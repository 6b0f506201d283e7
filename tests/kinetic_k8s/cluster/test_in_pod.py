from __future__ import annotations

from pathlib import Path

import pytest

from kinetic_k8s.cluster.connect import access_in_pod
from kinetic_k8s.errors import NotAuthenticatedError, UnknownClusterError

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    for name, text in (("token", "first\n"), ("ca.crt", "PEM"), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_pods_cluster_is_that_of_its_variables_and_its_service_account(account: Path) -> None:
    access = access_in_pod(POD, account=account)

    assert (access.server, access.ca, access.namespace) == ("https://10.96.0.1:6443", "PEM", "team")
    assert access_in_pod(POD, namespace="x", account=account).namespace == "x"
    sixth = {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert access_in_pod(sixth, account=account).server == "https://[fd00::1]:443"


def test_a_token_that_the_kubelet_replaced_is_read_again(account: Path) -> None:
    credentials = access_in_pod(POD, account=account).credentials
    first = credentials()
    (account / "token").write_text("second")

    assert first.headers == {"Authorization": "Bearer first"}
    assert first.renew_at is not None, "it is read again even if the server accepts it"
    assert credentials().headers == {"Authorization": "Bearer second"}
    (account / "token").unlink()
    with pytest.raises(NotAuthenticatedError, match="cannot be read"):
        credentials()


def test_outside_a_pod_or_without_an_account_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(UnknownClusterError, match="KUBERNETES_SERVICE_HOST is not set"):
        access_in_pod({}, account=tmp_path)
    with pytest.raises(UnknownClusterError, match="no service account") as caught:
        access_in_pod(POD, account=tmp_path)
    assert "automountServiceAccountToken" in (caught.value.hint or "")
