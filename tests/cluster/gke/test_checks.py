"""The service account of pods (`kinetic`, the default, or that of the settings), and the driver of mounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinetic.backends.gke.checks import check_mount, service_account_of
from kinetic.data import Data
from kinetic.errors import ConfigurationError
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access
from kinetic_k8s.manifests.volumes import DRIVER
from kinetic_payload.stores.store import Location


@pytest.fixture
def fresh(relayed_access: Access, own_namespace: str) -> ApiServer:
    """A namespace that no test has looked at before: a process looks once."""
    return ApiServer(replace(relayed_access, namespace=own_namespace), pause=lambda _: None)


def test_pods_run_as_an_account_that_exists_which_a_process_looks_up_once(
    bed: Any, fresh: ApiServer, relay: Any, own_namespace: str
) -> None:
    named = service_account_of(fresh, "default")
    assert (named.name, named.warning, relay.requests) == (None, None, [])
    with pytest.raises(ConfigurationError, match="no service account 'trainer'") as caught:
        service_account_of(fresh, "trainer")
    assert f"kubectl create serviceaccount trainer --namespace={own_namespace}" in str(caught.value)

    for name in ("trainer", "kinetic"):
        bed.kubectl("create", "serviceaccount", name, "-n", own_namespace)
    assert service_account_of(fresh, "trainer").name == "trainer"
    relay.requests.clear()
    found = [service_account_of(fresh, None) for _ in range(2)]
    assert {(one.name, one.warning) for one in found} == {("kinetic", None)}
    assert len(relay.requests) == 1


def test_without_that_account_pods_run_as_the_default_and_a_warning_says_so(
    fresh: ApiServer, own_namespace: str
) -> None:
    found = service_account_of(fresh, None)

    assert found.name is None
    assert "'default', because 'kinetic' does not exist in the namespace" in str(found.warning)
    assert own_namespace in str(found.warning)


def test_a_user_who_may_not_look_up_accounts_or_drivers_is_warned(bed: Any) -> None:
    user = ApiServer(bed.access("default", token="kube-bed-user"))

    found = service_account_of(user, None)

    assert found.name is None
    assert "may not be looked up" in str(found.warning)
    assert service_account_of(user, "trainer").name == "trainer"
    photos = Data("gs://photos/2026/", fuse=True)
    assert DRIVER in str(check_mount(photos, Location("gs", "jobs/team"), user))
