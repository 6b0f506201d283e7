"""Requests to a real API server: results, retries of faults, and errors of refusals."""

from __future__ import annotations

import gc
import itertools
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import connect
from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.errors import (
    AlreadyExistsError,
    ClusterError,
    ClusterUnreachableError,
    ConflictError,
    InvalidManifestError,
    KindNotServedError,
    NamespaceNotFoundError,
    NotAuthenticatedError,
    NotPermittedError,
    RefusedError,
)

Map = Callable[..., dict[str, Any]]


@pytest.fixture
def a_map() -> Map:
    """Return what describes a small object with a name and a label of this test's own."""
    own = f"map-{secrets.token_hex(4)}"

    def make(end: str = "", **more: Any) -> dict[str, Any]:
        metadata = {"name": f"{own}{end}", "labels": {"test": own}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}

    return make


def test_an_object_is_created_read_changed_and_deleted(cluster: ApiServer, a_map: Map) -> None:
    created = cluster.create(a_map(data={"a": "1"}))
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]

    assert cluster.get("ConfigMap", name)["data"] == {"a": "1"}
    assert "data" not in cluster.get("ConfigMap", name, brief=True)
    assert cluster.patch("ConfigMap", name, {"data": {"b": "2"}})["data"] == {"a": "1", "b": "2"}
    with pytest.raises(ConflictError):
        cluster.delete("ConfigMap", name, uid="another")
    assert cluster.delete("ConfigMap", name, uid=uid, dry_run=True)
    assert cluster.get("ConfigMap", name)["metadata"]["uid"] == uid
    assert cluster.delete("ConfigMap", name, uid=uid)
    assert cluster.get("ConfigMap", name) is None
    assert cluster.patch("ConfigMap", name, {"data": {}}) is None
    assert not cluster.delete("ConfigMap", name)


def test_a_dry_run_creates_nothing_and_reports_invalid_fields(
    cluster: ApiServer, a_map: Map
) -> None:
    name = cluster.create(a_map(), dry_run=True)["metadata"]["name"]

    assert cluster.get("ConfigMap", name) is None
    with pytest.raises(InvalidManifestError, match='unknown field "dta"'):
        cluster.create(a_map(dta={}), dry_run=True)


def test_a_list_has_all_pages_even_if_one_expires(
    cluster: ApiServer, relay: Any, relayed_access: Access, a_map: Map
) -> None:
    made = {cluster.create(a_map(f"-{number}"))["metadata"]["name"] for number in range(5)}
    labels = f"test={a_map()['metadata']['labels']['test']}"
    by_twos = ApiServer(relayed_access, page=2)
    relay.fail("continue=", 410, "The provided continue parameter is too old", reason="Expired")

    found = by_twos.list("ConfigMap", labels=labels)

    assert {each["metadata"]["name"] for each in found} == made
    assert {(each["kind"], each["apiVersion"]) for each in found} == {("ConfigMap", "v1")}
    assert len(relay.requests) == 5, "a page and one that is too old, then three"
    everywhere = by_twos.list("ConfigMap", labels=labels, everywhere=True)
    assert {each["metadata"]["name"] for each in everywhere} == made


def test_a_lost_response_to_a_creation_is_a_success(
    relay: Any, relayed: ApiServer, a_map: Map
) -> None:
    relay.lose("POST")

    created = relayed.create(a_map(data={"a": "1"}))

    assert created["data"] == {"a": "1"}
    assert [each.split()[0] for each in relay.requests] == ["POST", "POST", "GET"]
    relay.lose("DELETE")
    assert relayed.delete("ConfigMap", created["metadata"]["name"])


def test_a_lost_create_is_not_confused_with_an_object_of_another_client(
    relay: Any, relayed: ApiServer, a_map: Map
) -> None:
    other = a_map()
    other["metadata"]["labels"] = {"other": "one"}
    relayed.create(other)
    relay.fail("POST", 503, "apiserver is shutting down")

    with pytest.raises(AlreadyExistsError, match="already exists"):
        relayed.create(a_map())


def test_transient_errors_are_retried(relay: Any, relayed: ApiServer) -> None:
    for status in (429, 500, 502, 503, 504):
        relay.requests.clear()
        relay.fail("GET", status, "later", times=3)

        assert relayed.get("ConfigMap", "none") is None
        assert len(relay.requests) == 4, status


def test_requests_to_an_unreachable_server_are_retried_until_the_limit(
    relayed_access: Access,
) -> None:
    seconds = itertools.count()
    pauses: list[float] = []
    unreachable = replace(relayed_access, server="https://127.0.0.1:1")
    cluster = ApiServer(unreachable, clock=lambda: float(next(seconds)), pause=pauses.append)

    with pytest.raises(ClusterUnreachableError) as caught:
        cluster.within(10).get("Job", "kn-f")

    assert "Could not get Job kn-f" in caught.value.message
    assert "https://127.0.0.1:1: no usable response in 10 s" in caught.value.message
    assert "Connection refused" in caught.value.message
    assert len(pauses) > 2
    assert caught.value.hint


def test_an_untrusted_certificate_is_an_error_without_retries(
    bed: Any, relayed_access: Access
) -> None:
    untrusted = replace(relayed_access, server=bed.environment["KUBE_BED_SERVER"])

    def no_pause(_: float) -> None:
        raise AssertionError("waiting changes nothing")

    with pytest.raises(ClusterUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        ApiServer(untrusted, pause=no_pause).get("Job", "kn-f")


def test_an_unknown_field_is_an_error_without_retries(relay: Any, relayed: ApiServer) -> None:
    relay.fail(
        "PATCH", 500, "failed to create typed patch object: .spec.x: field not declared in schema"
    )

    with pytest.raises(InvalidManifestError, match="not declared"):
        relayed.patch("Job", "kn-f", {"spec": {"x": 1}})
    assert len(relay.requests) == 1


def test_a_page_of_another_server_never_means_that_an_object_is_absent(
    relay: Any, relayed: ApiServer
) -> None:
    relay.fail("GET", 404, b"<html>No such page</html>")

    with pytest.raises(KindNotServedError, match="No such page"):
        relayed.get("Job", "kn-f")
    relay.fail("GET", 200, b"<html>Log in to the network</html>")
    with pytest.raises(ClusterError, match="something other than JSON"):
        relayed.get("Job", "kn-f")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_without_valid_credentials_the_hint_is_to_log_in(
    relayed_access: Access, headers: dict[str, str]
) -> None:
    access = replace(
        relayed_access, credentials=lambda: Credentials(headers=headers), context="work"
    )

    with pytest.raises(NotAuthenticatedError) as caught:
        ApiServer(access, pause=lambda _: None).get("Job", "kn-f")

    assert "kubectl --context work" in (caught.value.hint or "")


def test_a_missing_permission_is_named_with_the_rule_that_grants_it(
    bed: Any, namespace: str
) -> None:
    user = ApiServer(bed.access(namespace, token="kube-bed-user"))

    with pytest.raises(NotPermittedError) as caught:
        user.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "kn-f"}})

    error = caught.value
    assert (error.verb, error.resource, error.namespace) == ("create", "jobs.batch", namespace)
    assert isinstance(error, PermissionError)
    hint = error.hint or ""
    assert (
        "The user 'kube-bed-user' needs a role that permits 'create' on 'jobs.batch' in the" in hint
    )
    assert '{apiGroups: ["batch"], resources: ["jobs"], verbs: ["create"]}' in hint
    assert "roles/container.developer" in hint
    with pytest.raises(NotPermittedError, match="cannot list resource"):
        user.list("Pod", everywhere=True)


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, 'User "kube-bed-admin" cannot get resource "jobs"'), (404, b"404 page not found")],
)
def test_a_rejection_of_a_permitted_request_is_retried_for_ten_seconds(
    relay: Any, relayed_access: Access, status: int, message: str | bytes
) -> None:
    pauses: list[float] = []
    cluster = ApiServer(relayed_access, pause=pauses.append)
    cluster.get("Job", "none")

    relay.fail("GET", status, message, reason="Forbidden", times=19)
    assert cluster.get("Job", "none") is None
    assert sum(pauses) == 9.5
    relay.fail("GET", status, message, reason="Forbidden", times=99)
    with pytest.raises(NotPermittedError if status == 403 else KindNotServedError):
        cluster.get("Job", "none")
    assert sum(pauses) == 19.5


def test_a_missing_add_on_is_named_with_its_documentation(relay: Any, relayed: ApiServer) -> None:
    relay.fail("GET", 404, b"404 page not found")

    with pytest.raises(KindNotServedError) as caught:
        relayed.list("LeaderWorkerSet")

    assert caught.value.hint == (
        "The add-on LeaderWorkerSet is not installed there. "
        "How to install it: https://lws.sigs.k8s.io/docs/installation/"
    )


def test_an_overloaded_server_is_retried_after_the_time_that_it_asks_for(
    relay: Any, relayed_access: Access
) -> None:
    pauses: list[float] = []
    cluster = ApiServer(relayed_access, pause=pauses.append)
    relay.fail("GET", 429, "too many requests", headers={"Retry-After": "7"})

    assert cluster.get("Job", "none") is None
    assert pauses == [7.0]


def test_handles_of_one_cluster_share_their_connections_and_close_them(
    relay: Any, tmp_path: Path
) -> None:
    kubeconfig = relay.kubeconfig(tmp_path)
    clusters = [connect("kube-bed", kubeconfig=kubeconfig) for _ in range(50)]

    for cluster in clusters:
        cluster.get("Job", "none")
    assert len(relay.open) == 1
    del cluster, clusters
    gc.collect()
    while relay.open:  # The other side notices it a moment later.
        threading.Event().wait(0.01)


def test_a_first_rejection_is_retried_once_since_the_server_may_have_just_started(
    relay: Any, relayed: ApiServer
) -> None:
    relay.fail("GET", 403, 'User "kube-bed-admin" cannot get resource "jobs"', reason="Forbidden")

    assert relayed.get("Job", "none") is None


def test_an_exceeded_quota_is_not_a_missing_permission(bed: Any, cluster: ApiServer) -> None:
    quota = ("quota", "no-jobs", "-n", cluster.identity.namespace)
    bed.kubectl("create", *quota, "--hard=count/jobs.batch=0")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "kn-f"}, "spec": JOB}
    try:
        # It is enforced a moment after its creation.
        with pytest.raises(RefusedError, match="exceeded quota"):
            any(cluster.create(job, dry_run=True) is None for _ in itertools.count())
    finally:
        bed.kubectl("delete", *quota)


JOB = {
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
}


def test_a_namespace_that_does_not_exist_is_named(bed: Any, a_map: Map) -> None:
    nowhere = ApiServer(bed.access("no-such-namespace"))

    with pytest.raises(NamespaceNotFoundError, match="'no-such-namespace'"):
        nowhere.create(a_map())
    assert nowhere.get("ConfigMap", "none") is None


def test_the_served_kinds_are_requested_once_and_never_guessed(
    relay: Any, relayed: ApiServer
) -> None:
    relay.fail("GET /apis", 403, "no")
    with pytest.raises(ClusterError):
        relayed.serves("JobSet")
    relay.fail("GET /apis", 200, b"<html>Log in</html>")
    with pytest.raises(ClusterError):
        relayed.serves("JobSet")
    asked = len(relay.requests)

    assert relayed.serves("JobSet")
    assert relayed.within(5).serves("LeaderWorkerSet")
    assert relayed.serves("Pod")
    assert len(relay.requests) == asked + 1


def test_a_newly_installed_kind_is_found_after_a_minute(relay: Any, relayed_access: Access) -> None:
    now = 0.0
    relayed = ApiServer(relayed_access, clock=lambda: now)
    only = {"name": "batch", "versions": [{"groupVersion": "batch/v1", "version": "v1"}]}
    relay.fail("GET /apis", 200, json.dumps({"kind": "APIGroupList", "groups": [only]}).encode())

    assert relayed.serves("Job")
    assert not relayed.serves("JobSet")
    now = 59.0
    assert not relayed.serves("JobSet")
    now = 60.0
    assert relayed.serves("JobSet")
