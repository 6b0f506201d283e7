"""Add-ons are installed, killed in between and removed on a control plane that has no node and no other add-on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from bed import Bed
from locks import locked

from kinetic.waiting import sleep
from kinetic_k8s.cluster.addons import (
    InstalledAddon,
    install_addon,
    installed_addon,
)
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access, Connection, Opened
from kinetic_k8s.errors import ConflictError, NamespaceNotFoundError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.access import access_manifests, user_bindings
from kinetic_k8s.manifests.releases import JOBSET, KUEUE, LWS, Release, release_manifests

SYSTEM = JOBSET.namespace
CONTROLLER = JOBSET.controller


@pytest.fixture(autouse=True)
def shared_node() -> None:
    """These tests need no node, so they neither start the one of other tests nor wait for it."""


@pytest.fixture
def server(plane_of_jobset: Bed) -> Iterator[Bed]:
    """A control plane, without the controller of JobSet, which no other test uses meanwhile."""
    with locked(plane_of_jobset.folder, "jobset"):
        yield plane_of_jobset


@pytest.fixture
def release(request: pytest.FixtureRequest) -> Release:
    """The add-on of this test: JobSet, unless its parameter is another one."""
    return getattr(request, "param", JOBSET)


@pytest.fixture
def cluster(server: Bed, release: Release) -> Iterator[ApiServer]:
    """That control plane without the add-on, whoever installed it; the namespace may be left."""
    found = ApiServer(server.access("default"))
    remove(found, release)
    yield found
    if release != JOBSET:
        remove(found, release)  # Without its controller, Kueue lets no pod start.


def remove(cluster: ApiServer, release: Release) -> None:
    """Remove all objects of an add-on but its namespace."""
    system = cluster.in_namespace(release.namespace)
    for manifest in reversed(release_manifests(release)[1:]):
        # A controller that aggregates roles may make one again that it has just read.
        while system.delete(manifest["kind"], manifest["metadata"]["name"]):
            sleep(0.05)


class Killed(BaseException):
    """The process ends here."""


class Dying(Connection):
    """Connections of a process that is killed after some requests."""

    def __init__(self, access: Access, requests: int) -> None:
        super().__init__(access)
        self.left = requests

    def opened(self) -> Opened:
        if not self.left:
            raise Killed
        self.left -= 1
        return super().opened()


def present(cluster: ApiServer) -> InstalledAddon:
    """Return JobSet as the cluster has it; it must have it."""
    found = installed_addon(cluster, JOBSET)
    assert found is not None
    return found


def versions(cluster: ApiServer, release: Release = JOBSET) -> list[str]:
    """Return the versions of all objects of an add-on, which a change would increase; all must be there."""
    system = cluster.in_namespace(release.namespace)
    manifests = release_manifests(release)
    found = [system.get(one["kind"], one["metadata"]["name"]) for one in manifests]
    return [each["metadata"]["resourceVersion"] for each in found if each is not None]


def marked(manifest: Manifest, version: str | None) -> Manifest:
    """Return the object as another version, or as others (None), installed it."""
    annotations = {**manifest["metadata"]["annotations"]}
    del annotations[JOBSET.installed]
    if version is not None:
        annotations[JOBSET.installed] = version
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def object_of(kind: str) -> Manifest:
    """Return the object of that kind of JobSet's release."""
    (found,) = [each for each in release_manifests(JOBSET) if each["kind"] == kind]
    return found


@pytest.mark.parametrize(
    ("release", "step"), [(JOBSET, 1), (LWS, 3), (KUEUE, 40)], indirect=["release"]
)
def test_an_installation_that_is_killed_at_any_request_goes_on_and_then_changes_nothing(
    server: Bed, cluster: ApiServer, release: Release, step: int
) -> None:
    for requests in count(step=step):
        access = server.access("default")
        dying = ApiServer(access, connection=Dying(access, requests))
        try:
            installed = install_addon(dying, release)
            break
        except Killed:
            found = installed_addon(cluster, release)
            assert found is None or (found.ours and found.problem)

    assert (installed.ours, installed.version) == (True, release.version)
    manifests = release_manifests(release)
    assert requests > len(manifests)
    before = versions(cluster, release)
    assert len(before) == len(manifests)
    of_controller = ("-n", release.namespace)
    server.kubectl(*of_controller, "set", "env", f"deployment/{release.controller}", "GOGC=200")
    install_addon(cluster, release)
    after = versions(cluster, release)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
    names = server.kubectl(*of_controller, "get", "deploy,svc,secret,cm,sa,role", "-o", "name")
    project = release.project
    assert {
        f"deployment.apps/{project}-controller-manager",
        f"service/{project}-webhook-service",
    } <= {*names.split()}


def test_the_controller_is_reported_until_its_pod_is_ready(server: Bed, cluster: ApiServer) -> None:
    install_addon(cluster, JOBSET)
    pods = f"api/v1/namespaces/{SYSTEM}/pods"
    while not (found := server.ask("GET", pods)["items"]):
        sleep(0.1)
    while "no nodes available" not in present(cluster).problem:
        sleep(0.1)

    (pod,) = found
    path = f"{pods}/{pod['metadata']['name']}"
    ready = {"type": "Ready", "status": "True"}
    pod = {**server.ask("GET", path), "status": {"phase": "Running", "conditions": [ready]}}
    server.ask("PUT", f"{path}/status", body=pod)

    while present(cluster).problem:
        sleep(0.1)


def test_another_version_is_replaced_except_for_what_others_have_changed(
    server: Bed, cluster: ApiServer
) -> None:
    install_addon(cluster, JOBSET)
    hooks, deployment = object_of("MutatingWebhookConfiguration"), object_of("Deployment")
    (hook, _) = hooks["webhooks"]
    name = hooks["metadata"]["name"]
    authority = {"webhooks": [{"name": hook["name"], "clientConfig": {"caBundle": "Q0E="}}]}
    server.kubectl("patch", "mutatingwebhookconfiguration", name, "-p", json.dumps(authority))
    for each in (hooks, deployment):
        cluster.apply(marked(each, "v0.11.0"))

    install_addon(cluster, JOBSET)

    system = cluster.in_namespace(SYSTEM)
    found = system.get("MutatingWebhookConfiguration", name)
    assert found is not None
    assert found["metadata"]["annotations"][JOBSET.installed] == JOBSET.version
    assert found["webhooks"][0]["clientConfig"]["caBundle"] == "Q0E="

    cluster.apply(marked(deployment, "v0.11.0"))
    server.kubectl("-n", SYSTEM, "set", "image", f"deployment/{CONTROLLER}", "manager=mine:v1")
    with pytest.raises(ConflictError, match=r'"kubectl-set" .*containers.*\.image'):
        install_addon(cluster, JOBSET)
    assert "mine:v1" in json.dumps(system.get("Deployment", CONTROLLER))

    newer = "manager=registry.example/jobset:v0.100.0"
    server.kubectl("-n", SYSTEM, "set", "image", f"deployment/{CONTROLLER}", newer)
    assert install_addon(cluster, JOBSET).version == "v0.100.0"


def test_jobset_of_others_is_named_and_left(server: Bed, cluster: ApiServer) -> None:
    definition = marked(object_of("CustomResourceDefinition"), None)
    deployment = marked(object_of("Deployment"), None)
    text = json.dumps(deployment).replace(JOBSET.version, "v0.11.1")
    cluster.apply(object_of("Namespace"))
    for given in (json.dumps(definition), text):
        server.kubectl("apply", "--server-side", "--field-manager=helm", "-f", "-", given=given)

    found = install_addon(cluster, JOBSET)

    assert (found.ours, found.version) == (False, "v0.11.1")
    assert cluster.get("ClusterRole", "jobset-manager-role") is None

    cluster.delete("CustomResourceDefinition", definition["metadata"]["name"])
    with pytest.raises(ConflictError, match=f"Deployment {CONTROLLER} .* did not install it"):
        install_addon(cluster, JOBSET)
    server.kubectl("-n", SYSTEM, "get", "deployment", CONTROLLER)


def test_jobset_whose_definition_is_being_deleted_is_installed_again(cluster: ApiServer) -> None:
    install_addon(cluster, JOBSET)
    cluster.delete("CustomResourceDefinition", JOBSET.definition)

    assert install_addon(cluster, JOBSET).ours

    assert len(versions(cluster)) == len(release_manifests(JOBSET))


def test_an_applied_object_keeps_the_fields_of_others_and_names_who_set_them(
    server: Bed, cluster: ApiServer
) -> None:
    def config(**data: str) -> Manifest:
        metadata = {"name": "settings", "namespace": "kube-public"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    public = cluster.in_namespace("kube-public")
    assert cluster.apply(config(a="1", b="1"), dry_run=True)["data"] == {"a": "1", "b": "1"}
    assert public.get("ConfigMap", "settings") is None
    cluster.apply(config(a="1", b="1"))
    theirs = json.dumps({"data": {"a": "2", "c": "2"}})
    server.kubectl("-n", "kube-public", "patch", "configmap", "settings", "-p", theirs)

    with pytest.raises(ConflictError, match=r'conflict with "kubectl-patch" .*\.data\.a'):
        cluster.apply(config(a="1"))
    assert cluster.apply(config(a="1"), force=True)["data"] == {"a": "1", "c": "2"}

    nowhere = {**config(), "metadata": {"name": "settings", "namespace": "nowhere"}}
    with pytest.raises(NamespaceNotFoundError, match="'nowhere'"):
        cluster.apply(nowhere)


def test_members_may_submit_in_their_namespace_only(server: Bed, cluster: ApiServer) -> None:
    for manifest in (*access_manifests("team"), *user_bindings("team", "group:all@example.com")):
        cluster.apply(manifest)

    def may(**attributes: Any) -> bool:
        spec = {"user": "ada", "groups": ["all@example.com"], "resourceAttributes": attributes}
        path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(server.ask("POST", path, body={"spec": spec})["status"]["allowed"])

    job = {"verb": "create", "group": "batch", "resource": "jobs"}
    while not may(**job, namespace="team"):  # The API server learns of it a moment later.
        sleep(0.1)
    assert not may(**job, namespace="default")
    assert may(verb="list", group="cloud.google.com", resource="computeclasses")
    assert not may(verb="delete", group="cloud.google.com", resource="computeclasses")
