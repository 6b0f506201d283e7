"""The service account of pods: `kinetic`, the default, or the one in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kinetic.backends.gke.checks import service_account_of
from kinetic.errors import ConfigurationError
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access


@pytest.fixture
def own_namespace(bed: Any) -> Iterator[str]:
    """A namespace that no test has looked at before: a process looks once."""
    with bed.new_namespace() as name:
        yield name


@pytest.fixture
def fresh(relayed_access: Access, own_namespace: str) -> ApiServer:
    return ApiServer(replace(relayed_access, namespace=own_namespace), pause=lambda _: None)


def test_pods_run_as_kinetic_if_it_exists_and_a_process_looks_once(
    bed: Any, fresh: ApiServer, relay: Any, own_namespace: str
) -> None:
    bed.kubectl("create", "serviceaccount", "kinetic", "-n", own_namespace)

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


def test_an_account_of_the_settings_must_exist(
    bed: Any, fresh: ApiServer, own_namespace: str
) -> None:
    with pytest.raises(ConfigurationError, match="no service account 'trainer'") as caught:
        service_account_of(fresh, "trainer")
    assert f"kubectl create serviceaccount trainer --namespace={own_namespace}" in str(caught.value)

    bed.kubectl("create", "serviceaccount", "trainer", "-n", own_namespace)
    assert service_account_of(fresh, "trainer").name == "trainer"


def test_the_default_in_the_settings_is_neither_looked_up_nor_reported(
    fresh: ApiServer, relay: Any
) -> None:
    found = service_account_of(fresh, "default")

    assert (found.name, found.warning, relay.requests) == (None, None, [])


def test_a_user_who_may_not_look_up_accounts_gets_the_default_or_that_of_the_settings(
    bed: Any,
) -> None:
    user = ApiServer(bed.access("default", token="kube-bed-user"))

    found = service_account_of(user, None)

    assert found.name is None
    assert "may not be looked up" in str(found.warning)
    assert service_account_of(user, "trainer").name == "trainer"
