"""A cluster is made and removed: Google's own clients speak with a strict server, whose clusters are a real Kubernetes."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from bed import Bed
from click.testing import Result
from google.cloud.artifactregistry_v1 import CleanupPolicy, Repository
from google.cloud.container_v1 import Cluster
from locks import locked

from kinetic.errors import (
    CloudPermissionError,
    ConfigurationError,
    InvalidRequestError,
    KineticError,
    ProvisioningBusyError,
    ProvisioningError,
)
from kinetic.provisioning.clusters import Prepared, prepare_down, prepare_up, running_jobs
from kinetic.provisioning.desired import EXPIRY, USER_ROLES, ClusterOptions
from kinetic.provisioning.doctor import diagnose
from kinetic.provisioning.google.buckets import storage_client
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.google.networks import NetworksEdge
from kinetic.provisioning.inside import AddonEdge, Connection
from kinetic.provisioning.node_pools import prepare_node_pools
from kinetic.provisioning.plan import Resource as Plain
from kinetic.provisioning.pools import PoolOptions, list_pools, remove_pool
from kinetic.provisioning.prices import known_prices
from kinetic.provisioning.status import cluster_status
from kinetic.settings.settings import Settings
from kinetic.waiting import sleep
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.manifests.access import user_bindings
from kinetic_k8s.manifests.compute_class import parse_priority
from kinetic_k8s.manifests.releases import JOBSET, release_manifests
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location
from kinetic_servers.fakes import a_record
from kinetic_servers.google import GoogleCloud
from kinetic_servers.google.billing import sku
from kinetic_servers.google.networks import Resource
from kinetic_servers.stub_jobs import run

PROJECT = "my-project"
JOBS = f"{PROJECT}-kn-demo-jobs"
BUILDS = f"{PROJECT}-kn-demo-builds"
TOKEN = "kube-bed-admin"


@pytest.fixture(autouse=True)
def shared_node() -> None:
    """These tests need no node, so they neither start the one of other tests nor wait for it."""


@contextmanager
def google(bed: Bed, folder: Path, authority: Any) -> Iterator[GoogleCloud]:
    """Serve Google Cloud with an empty project, whose clusters are *bed*; clients of this process use it."""
    server = bed.environment["KUBE_BED_SERVER"]
    ca = Path(bed.environment["KUBE_BED_CA"]).read_text()
    with (
        GoogleCloud(
            folder / "google", authority=authority, api_server=lambda _: (server, ca), token=TOKEN
        ) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        found.add_project(PROJECT, number=123456789012)
        for name, value in found.environment.items():
            patch.setenv(name, value)
        patch.setenv("KINETIC_HOME", str(folder / "home"))
        yield found


@pytest.fixture
def cloud(plane_of_clusters: Bed, authority: Any, tmp_path: Path) -> Iterator[GoogleCloud]:
    with google(plane_of_clusters, tmp_path, authority) as found:
        yield found


def settings(**more: str) -> Settings:
    given = {"project": PROJECT, "zone": "us-central1-a", "cluster": "demo", **more}
    return Settings.from_environment(**given)


def up(**options: Any) -> Prepared:
    return prepare_up(settings(), ClusterOptions(**options), poll=0.01)


def down(**options: Any) -> Prepared:
    return prepare_down(settings(), poll=0.01, **options)


def expired(cloud: GoogleCloud) -> None:
    """Let a minute pass, after which the lease of a process that was killed counts no more."""
    if f"storage/buckets/{BUILDS}" in cloud.resources(PROJECT):
        cloud.buckets.age(BUILDS, "provisioning/", timedelta(minutes=2))


def apis(cloud: GoogleCloud) -> list[str]:
    return [each for each in cloud.resources(PROJECT) if each.startswith("serviceusage/")]


def test_a_cluster_is_made_used_and_removed_without_a_trace(
    cloud: GoogleCloud, plane_of_clusters: Bed
) -> None:
    pools = ["cpu", "v6e-8:spot", "cpu", "l4", "l4x1"]
    up(accelerators=pools, namespaces=["default", "team", "team"]).apply()

    resources = cloud.resources(PROJECT)
    assert {
        "compute/networks/kn-demo",
        "container/clusters/us-central1/demo",
        "artifactregistry/repositories/us/kn-demo",
        f"storage/buckets/{JOBS}",
        f"iam/serviceAccounts/kn-demo-nodes@{PROJECT}.iam.gserviceaccount.com",
    } <= {*resources}
    api = ApiServer(plane_of_clusters.access("team"))
    assert api.get("ServiceAccount", "kinetic") is not None
    assert api.get("Role", "kinetic-user") is not None
    assert api.get("ComputeClass", "kinetic-v6e-8-spot") is not None

    changes = len(cloud.changes)
    again = up(accelerators=pools, namespaces=["default", "team"])
    assert again.plan.changes == ()
    again.apply()
    assert made(cloud, changes) == []

    open_store(parse_location(f"gs://{JOBS}")).write("outputs/j/model", b"weights")
    first = down()
    kept = {step.resource.name for step in first.plan.steps if step.action == "keep"}
    assert kept == {JOBS}
    first.apply()
    assert cloud.resources(PROJECT) == sorted([*apis(cloud), f"storage/buckets/{JOBS}"])
    assert down().plan.changes == ()
    down(delete_data=True).apply()
    assert cloud.resources(PROJECT) == apis(cloud)
    assert down(delete_data=True).plan.steps == ()


def test_up_that_is_killed_after_any_change_continues(cloud: GoogleCloud) -> None:
    up(namespaces=["default"]).apply()
    expected, made_at_once = cloud.resources(PROJECT), made(cloud, 0)
    down().apply()
    for count in range(1, 60):
        cloud.dies_after(count)
        before = len(cloud.changes)
        try:
            up(namespaces=["default"]).apply()
            complete = True
        except KineticError:
            complete = False
        cloud.revive()
        expired(cloud)
        up(namespaces=["default"]).apply()
        # APIs stay enabled after `down`; everything else is made once.
        assert made(cloud, before) == [each for each in made_at_once if "Enable" not in each]
        assert _named(cloud.resources(PROJECT)) == _named(expected)
        down().apply()
        assert cloud.resources(PROJECT) == apis(cloud)
        if complete:
            break
    assert count > 15


def test_down_that_is_killed_after_any_change_continues(cloud: GoogleCloud) -> None:
    for count in range(1, 60):
        up(namespaces=["default"]).apply()
        cloud.dies_after(count)
        try:
            down().apply()
            complete = True
        except KineticError:
            complete = False
        cloud.revive()
        expired(cloud)
        down().apply()
        assert cloud.resources(PROJECT) == apis(cloud)
        if complete:
            break
    assert count > 10


def made(cloud: GoogleCloud, start: int) -> list[str]:
    """Return the changes from one on, in order of their names, without those of leases."""
    return sorted(each for each in cloud.changes[start:] if "lease" not in each)


def _named(resources: list[str]) -> list[str]:
    """Return names without what GKE chose."""
    return sorted(re.sub(r"-[0-9a-f]{8}-(all|vms)", r"-\1", each) for each in resources)


@pytest.mark.parametrize(
    "permission",
    [
        "serviceusage.services.enable",
        "storage.buckets.create",
        "storage.buckets.setIamPolicy",
        "artifactregistry.repositories.create",
        "artifactregistry.repositories.setIamPolicy",
        "iam.serviceAccounts.create",
        "iam.serviceAccounts.actAs",
        "compute.networks.create",
        "compute.subnetworks.create",
        "compute.routers.create",
        "container.clusters.create",
        "resourcemanager.projects.setIamPolicy",
    ],
)
def test_a_missing_permission_is_named_with_the_line_that_grants_it(
    cloud: GoogleCloud, permission: str
) -> None:
    cloud.add_project("other-project", number=42, apis=["cloudresourcemanager.googleapis.com"])
    cloud.deny(permission)
    with pytest.raises(CloudPermissionError, match=re.escape(permission)) as caught:
        prepare_up(settings(project="other-project"), poll=0.01).apply()
    assert permission in caught.value.permissions
    assert "gcloud projects add-iam-policy-binding other-project --member=serviceAccount:" in str(
        caught.value
    )
    assert cloud.changes == []


def test_what_google_has_not_heard_of_yet_is_waited_for(cloud: GoogleCloud) -> None:
    cloud.lag = 3
    cloud.polls = 3
    cloud.fail(
        "CreateCluster",
        grpc.StatusCode.FAILED_PRECONDITION,
        "Operation operation-1 is currently upgrading cluster demo. Please wait and try again once it is done.",
    )
    busy = "Cluster is running incompatible operation operation-1."
    cloud.fail("CreateCluster", grpc.StatusCode.FAILED_PRECONDITION, busy)
    cloud.fail("routers.insert", 403, reason="rateLimitExceeded")
    cloud.fail("CreateRepository", grpc.StatusCode.UNAVAILABLE)
    cloud.fail("networks.insert", 503, after=True)
    cloud.fail("buckets.insert", 503, after=True)
    up().apply()
    assert up().plan.changes == ()


def test_a_quota_or_a_failed_cluster_is_reported_and_replaced(cloud: GoogleCloud) -> None:
    cloud.fail_operation("CreateCluster", "Quota exceeded: IN_USE_ADDRESSES in us-central1")
    with pytest.raises(ProvisioningError, match="IN_USE_ADDRESSES") as caught:
        up().apply()
    assert "quotas?project=my-project" in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "Begun, and not seen to end: create cluster us-central1/demo" in notes
    assert "Not done: " in notes

    again = up()
    (step,) = (step for step in again.plan.changes if step.resource.kind == "cluster")
    assert step.action == "replace"
    store = open_store(parse_location(f"gs://{JOBS}"))
    for job in ("cpu-f-20260101-000000-abcdef0", "cpu-f-20260101-000000-abcdef1"):
        store.write(f"{job}/handle.json", encode(a_record(job_id=job)))
    ended = Outcome(job_id="cpu-f-20260101-000000-abcdef1", status="cancelled")
    store.write("cpu-f-20260101-000000-abcdef1/outcome.json", encode(ended))
    assert running_jobs(again) == ["cpu-f-20260101-000000-abcdef0"]
    assert "IN_USE_ADDRESSES" in step.detail
    again.apply()
    assert up().plan.changes == ()


def test_up_completes_jobset_and_waits_for_its_controller(
    plane_of_jobset: Bed, authority: Any, tmp_path: Path
) -> None:
    bed = plane_of_jobset
    with locked(bed.folder, "jobset"), google(bed, tmp_path, authority):
        system = ApiServer(bed.access("jobset-system"))
        for each in reversed(release_manifests(JOBSET)[1:]):
            kind, name = each["kind"], each["metadata"]["name"]
            system.delete(kind, name)
            while system.get(kind, name, brief=True) is not None:
                sleep(0.05)
        # An installation that was killed: the definition is there, and nothing else.
        system.apply(
            next(e for e in release_manifests(JOBSET) if e["kind"] == "CustomResourceDefinition")
        )

        class Impatient(Cloud):
            def wait(
                self, is_done: Callable[[], bool], why: Callable[[], str] = str, seconds: float = 0
            ) -> None:
                super().wait(is_done, why, 0)

        edge = AddonEdge(Impatient("demo-project"), Connection(settings(), "us-central1"))
        up(jobset=False).apply()
        seen = {each.name: each.state for each in diagnose(settings()) if each.state != "pass"}
        assert seen == {f"JobSet {JOBSET.version}": "warn"}
        with pytest.raises(ProvisioningError, match="The controller of JobSet does not run"):
            edge.create(Plain(kind="JobSet", name=JOBSET.version, settings={"version": ""}))
        while not (pods := system.list("Pod")):
            sleep(0.1)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        bed.kubectl(
            *("patch", "pod", pods[0]["metadata"]["name"], "-n", "jobset-system"),
            *("--subresource=status", "--type=merge", "-p", json.dumps({"status": ready})),
        )
        up().apply()
        assert up().plan.changes == ()
        more = {s.resource.kind: s for s in up(addons=["kueue", "lws"]).plan.steps}
        assert more["Kueue"].action == "create"
        assert more["LeaderWorkerSet"].resource.id in more["Kueue"].after


def test_what_is_not_ours_is_never_changed(cloud: GoogleCloud) -> None:
    cloud.add_project("their-project", number=7)
    prepare_up(settings(project="their-project", cluster="theirs"), poll=0.01).apply()
    cloud.buckets.create_bucket(JOBS, project="their-project")
    changes = len(cloud.changes)
    prepared = up()
    assert [JOBS in each.message for each in prepared.plan.problems] == [True]
    with pytest.raises(ValueError, match="problems"):
        prepared.apply()
    down().apply()
    assert made(cloud, changes) == []


def test_what_a_job_writes_while_down_asks_is_not_deleted(cloud: GoogleCloud) -> None:
    up().apply()
    prepared = down()
    open_store(parse_location(f"gs://{JOBS}")).write("outputs/j/model", b"weights")
    with pytest.raises(ProvisioningError, match="not empty"):
        prepared.apply()
    assert cloud.buckets.read(JOBS, "outputs/j/model") == b"weights"
    down().apply()
    assert cloud.resources(PROJECT) == sorted([*apis(cloud), f"storage/buckets/{JOBS}"])


def test_down_finds_its_own_region_if_others_have_a_cluster_of_this_name(
    cloud: GoogleCloud,
) -> None:
    cloud.fail("CreateCluster", grpc.StatusCode.INVALID_ARGUMENT)
    with pytest.raises(ProvisioningError):
        up().apply()
    theirs = "container/clusters/europe-west4/demo"
    cloud.existing[f"{PROJECT}/{theirs}"] = Cluster(name="demo", location="europe-west4")
    down().apply()
    assert cloud.resources(PROJECT) == sorted([*apis(cloud), theirs])


@pytest.mark.parametrize("kind", ["network", "repository", JOBS, BUILDS])
def test_what_somebody_made_after_the_plan_is_not_used(cloud: GoogleCloud, kind: str) -> None:
    cloud.add_project("their-project", number=7)
    prepared = up()
    if kind == "network":
        made = Resource(PROJECT, "global", "networks", {"name": "kn-demo"})
        cloud.existing[made.key] = made
    elif kind == "repository":
        key = f"{PROJECT}/artifactregistry/repositories/us/kn-demo"
        cloud.existing[key] = Repository(format_="DOCKER")
    else:
        cloud.buckets.create_bucket(kind, project="their-project")
    with pytest.raises(ProvisioningError, match="Kinetic did not make it"):
        prepared.apply()
    if kind in (JOBS, BUILDS):
        assert cloud.buckets.names(kind) == []
        changes = len(cloud.changes)
        down().apply()
        assert not [each for each in cloud.changes[changes:] if kind in each]


@pytest.mark.parametrize("name", [JOBS, BUILDS])
def test_a_bucket_with_our_labels_in_another_project_is_not_used(
    cloud: GoogleCloud, name: str
) -> None:
    up().apply()
    cloud.add_project("their-project", number=7)
    cloud.buckets.give(name, "their-project")
    assert [name in each.message for each in up().plan.problems] == [True]
    assert name not in {each.resource.name for each in down(delete_data=True).plan.changes}
    cloud.buckets.give(name, "stranger-project")
    assert [name in each.message for each in up().plan.problems] == [True]
    down().apply()
    assert ("stranger-project", name) in cloud.buckets.resources()


def test_a_plan_that_is_out_of_date_deletes_nothing_but_what_it_named(cloud: GoogleCloud) -> None:
    cloud.fail_operation("CreateCluster", "Quota exceeded: IN_USE_ADDRESSES in us-central1")
    with pytest.raises(ProvisioningError):
        up().apply()
    asked = up()
    assert "replace" in {step.action for step in asked.plan.changes}
    up().apply()
    changes = len(cloud.changes)
    asked.apply()
    assert not [each for each in cloud.changes[changes:] if "Cluster" in each]

    asked = down()
    open_store(parse_location(f"gs://{JOBS}")).write("outputs/j/model", b"weights")
    with pytest.raises(ProvisioningError, match="not empty"):
        asked.apply()
    assert cloud.buckets.names(JOBS) == ["outputs/j/model"]


def test_what_the_user_has_set_stays(cloud: GoogleCloud) -> None:
    up().apply()
    policies = cloud.existing[f"{PROJECT}/artifactregistry/repositories/us/kn-demo"]
    keep = CleanupPolicy(id="keep", action="KEEP", most_recent_versions={"keep_count": 5})
    policies.cleanup_policies = {"keep": keep}
    router = cloud.existing[f"{PROJECT}/compute/routers/us-central1/kn-demo"]
    router.data["nats"][0] |= {"natIpAllocateOption": "MANUAL_ONLY", "natIps": ["mine"]}
    rule = Resource(PROJECT, "global", "firewalls", {"name": "mine", "network": network_link()})
    cloud.existing[rule.key] = rule
    bucket = storage_client(Cloud(PROJECT, cloud.environment)).get_bucket(JOBS)
    theirs = [("logs/", 365), ("data/", 500), ("mine/", 1)]
    bucket.lifecycle_rules = [
        {"action": {"type": "Delete"}, "condition": {"age": age, "matchesPrefix": [prefix]}}
        for prefix, age in theirs
    ]
    bucket.soft_delete_policy.retention_duration_seconds = 30 * 86400
    bucket.patch()
    binding = cloud.policy(PROJECT).bindings.add(role="roles/logging.logWriter")
    binding.members.append("user:ada@example.com")
    binding.condition.expression = "request.time < timestamp('2027-01-01T00:00:00Z')"
    cloud.policy(PROJECT).version = 3

    again = up(namespaces=["default", f"more-{secrets.token_hex(3)}"])
    kinds = {"bucket", "repository", "role", "access"}
    assert {step.resource.kind for step in again.plan.changes} == kinds
    again.apply()
    policies = cloud.existing[f"{PROJECT}/artifactregistry/repositories/us/kn-demo"]
    assert {*policies.cleanup_policies} == {"keep", "old"}
    bucket.reload()
    assert bucket.soft_delete_policy.retention_duration_seconds == 30 * 86400
    conditions = [rule["condition"] for rule in bucket.lifecycle_rules]
    assert [(each["matchesPrefix"][0], each["age"]) for each in conditions[:3]] == theirs
    assert len(conditions) == len(EXPIRY) + 1

    network = NetworksEdge(Cloud(PROJECT, cloud.environment, patience=0, poll=0.01), "demo")
    wanted = Plain(kind="network", name="global/networks/kn-demo")
    with pytest.raises(ProvisioningError, match="firewalls/mine"):
        network.delete(wanted)
    del cloud.existing[rule.key]
    down().apply()
    assert binding in cloud.policy(PROJECT).bindings
    assert cloud.resources(PROJECT) == sorted(
        [*apis(cloud), "resourcemanager/bindings/roles/logging.logWriter/user:ada@example.com"]
    )


def network_link() -> str:
    return f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/networks/kn-demo"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"project": "123456789012"}, "is the number of a project"),
        ({"project": "gone-project"}, "has been deleted"),
        ({"zone": "us-central7"}, "no region or zone 'us-central7'"),
        ({"zone": "us-central1-z"}, "no region or zone 'us-central1-z'"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(
    cloud: GoogleCloud, given: dict[str, str], message: str
) -> None:
    enabled = ["cloudresourcemanager.googleapis.com", "compute.googleapis.com"]
    cloud.add_project("gone-project", number=8, apis=enabled)
    cloud.delete_project("gone-project")
    cloud.add_project("here-project", number=9, apis=enabled)
    with pytest.raises((ConfigurationError, ProvisioningError), match=message):
        prepare_up(settings(**{"project": "here-project", **given}), poll=0.01)
    assert cloud.changes == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accelerators": ["v6e-8:flex-start"]}, "how its machines are bought"),
        ({"accelerators": ["tpu7x-16"]}, "workload policy"),
        ({"accelerators": ["v7z-8"]}, "v7z"),
        ({"addons": ["argo"]}, "There is no add-on 'argo'"),
        ({"namespaces": ["default", "Team_A"]}, "'Team_A' cannot be the name of a namespace"),
    ],
)
def test_what_could_not_be_made_at_the_end_is_refused_at_the_start(
    cloud: GoogleCloud, options: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(KineticError, match=message):
        up(**options)
    assert cloud.requests == []


def test_a_region_without_the_machines_names_one_that_has_them(cloud: GoogleCloud) -> None:
    cloud.add_project("here-project", number=9, apis=["compute.googleapis.com"])
    asked = settings(project="here-project", zone="us-west4")
    with pytest.raises(ConfigurationError, match=r"No zone of us-west4 (?s:.*) us-central1"):
        prepare_up(asked, ClusterOptions(accelerators=["v6e-8"]), poll=0.01)
    asked = settings(project="here-project", zone="us-central1-a")
    with pytest.raises(ConfigurationError, match=r"us-central1-a has no (?s:.*) us-central1-b"):
        prepare_up(asked, ClusterOptions(accelerators=["v6e-8"], standard=True), poll=0.01)


def test_of_two_at_once_the_second_names_the_first(cloud: GoogleCloud) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(change: str) -> None:
        if change.startswith("CreateCluster"):
            reached.set()
            assert go_on.wait(60)

    cloud.hook = hold
    first = threading.Thread(target=lambda: up().apply())
    first.start()
    assert reached.wait(60)
    try:
        with pytest.raises(ProvisioningBusyError, match=f"kinetic up of .*{os.getpid()}"):
            up().apply()
    finally:
        go_on.set()
        first.join()
    assert up().plan.changes == ()


def test_doctor_names_what_is_missing_and_the_line_that_mends_it(cloud: GoogleCloud) -> None:
    assert {check.state for check in diagnose(settings()) if check.fix == "kinetic up"} == {
        "fail",
        "warn",
    }
    up(accelerators=["cpu"]).apply()
    assert {check.state for check in diagnose(settings())} == {"pass"}
    cloud.projects[PROJECT].billing = False
    (billing,) = (check for check in diagnose(settings()) if check.state != "pass")
    assert (billing.name, billing.state, PROJECT in billing.fix) == ("billing", "fail", True)
    cloud.projects[PROJECT].billing = True
    assert cluster_status(settings()).pools[0].pool.name == "kinetic-cpu"

    cloud.add_disk(PROJECT, "us-central1-a", "pvc-1", **{"goog-k8s-cluster-name": "demo"})
    cloud.deny("storage.objects.create", "compute.routers.get")
    cloud.fail("GetRepository", grpc.StatusCode.UNAVAILABLE, times=100)
    changes = len(cloud.changes)
    found = {check.name: check for check in diagnose(settings()) if check.state != "pass"}
    assert made(cloud, changes) == []
    assert {name: (check.state, check.fix) for name, check in found.items()} == {
        "objects of jobs": (
            "fail",
            f"gcloud storage buckets add-iam-policy-binding gs://{JOBS} --member=serviceAccount:"
            "tester@test-project.iam.gserviceaccount.com --role=roles/storage.objectUser",
        ),
        "router regions/us-central1/routers/kn-demo": (
            "fail",
            found["router regions/us-central1/routers/kn-demo"].fix,
        ),
        "repository us/kn-demo": (
            "fail",
            "Run the command again later: it continues.",
        ),
        "disk pvc-1": (
            "warn",
            f"gcloud compute disks delete pvc-1 --zone=us-central1-a --project={PROJECT}",
        ),
    }
    assert "roles/compute.networkAdmin" in found["router regions/us-central1/routers/kn-demo"].fix


def test_doctor_takes_the_network_from_the_cluster(cloud: GoogleCloud) -> None:
    prepare_up(settings(cluster="other"), poll=0.01).apply()
    up(network="kn-other").apply()
    assert {check.state for check in diagnose(settings())} == {"pass"}


def test_a_second_cluster_has_everything_of_its_own(cloud: GoogleCloud) -> None:
    up().apply()
    other = settings(cluster="second", zone="us-east1-b")
    prepare_up(other, ClusterOptions(standard=True), poll=0.01).apply()
    one = cloud.resources(PROJECT)
    assert "container/clusters/us-east1-b/second" in one
    elsewhere = prepare_up(settings(zone="us-east1"), poll=0.01).plan.problems
    assert "demo' in us-central1" in elsewhere[0].message
    prepare_down(other, poll=0.01).apply()
    left = cloud.resources(PROJECT)
    assert not [each for each in left if "second" in each]
    assert up().plan.changes == ()


def node_pools(accelerator: str = "v6e-16", **options: Any) -> Prepared:
    return prepare_node_pools(settings(), accelerator, PoolOptions(**options), poll=0.01)


def listed() -> dict[str, tuple[str, int, int | None]]:
    """Return machines, least and most of each node pool."""
    found = [each for each in list_pools(settings()) if not each.is_class]
    return {p.pool.name: (str(p.priorities[0]), p.pool.min_nodes, p.max_nodes) for p in found}


def test_node_pools_that_are_killed_after_any_change_continue(cloud: GoogleCloud) -> None:
    cloud.quotas["TPUS-PER-TPU-FAMILY-per-project-region"] = 32
    up(standard=True).apply()
    there = cloud.resources(PROJECT)
    for count in range(1, 20):
        before = len(cloud.changes)
        cloud.dies_after(count)
        try:
            node_pools().apply()
            node_pools(slices=2, min_nodes=4).apply()
            complete = True
        except KineticError:
            complete = False
        cloud.revive()
        node_pools(slices=2, min_nodes=4).apply()
        assert node_pools().plan.changes == ()
        assert sum("CreateNodePool" in each for each in cloud.changes[before:]) == 2
        assert listed() == {
            "kinetic-np-v6e-16-0": ("v6e-16", 4, 4),
            "kinetic-np-v6e-16-1": ("v6e-16", 0, 4),
        }
        for name in listed():
            remove_pool(settings(), name, poll=0.01)
        assert cloud.resources(PROJECT) == there
        if complete:
            break
    assert count > 2


def test_a_node_pool_is_what_was_asked_for_and_only_its_limits_change(cloud: GoogleCloud) -> None:
    up(standard=True).apply()
    for way in ({}, {"flex_start": True}, {"reservation": "shared-project/mine"}):
        options = {"max_nodes": 3, **way}
        prepared = prepare_node_pools(
            settings(), "l4", PoolOptions(**options), name="gpus", poll=0.01
        )
        prepared.apply()
        (pool,) = (each for each in cluster_of(cloud).node_pools if each.name == "gpus")
        named = {"flex_start": "l4:flex-start", "reservation": "l4:reservation=shared-project/mine"}
        assert listed() == {"gpus": (named.get(next(iter(way), ""), "l4"), 0, 3)}
        assert pool.config.service_account == f"kn-demo-nodes@{PROJECT}.iam.gserviceaccount.com"
        assert pool.config.accelerators[0].accelerator_type == "nvidia-l4"
        assert list(pool.locations) == ["us-central1-a"]
        remove_pool(settings(), "gpus", poll=0.01)
    node_pools("l4:spot", max_nodes=2).apply()
    assert [each.detail for each in node_pools("l4:spot", slices=3).plan.changes] == [
        "max_nodes: 2 → 3"
    ]
    (spot,) = (each for each in cluster_of(cloud).node_pools if "spot" in each.name)
    assert [each.key for each in spot.config.taints] == ["cloud.google.com/gke-spot"]
    taken = prepare_node_pools(settings(), "t4", name=spot.name, poll=0.01).plan
    assert "has machines='l4:spot', and 't4' is wanted" in taken.problems[0].message
    theirs = prepare_node_pools(settings(), "t4", name="system", poll=0.01).plan
    assert "Kinetic did not make it" in theirs.problems[0].message
    with pytest.raises(InvalidRequestError, match="no pool 'system' of Kinetic"):
        remove_pool(settings(), "system")


def test_limits_that_are_not_given_stay_also_after_a_node_pool_was_removed(
    cloud: GoogleCloud,
) -> None:
    up(standard=True).apply()
    node_pools(slices=2, min_nodes=8).apply()
    remove_pool(settings(), "kinetic-np-v6e-16-0", poll=0.01)
    assert node_pools().plan.changes == ()
    node_pools(slices=2).apply()
    assert listed() == {
        "kinetic-np-v6e-16-0": ("v6e-16", 0, 4),
        "kinetic-np-v6e-16-1": ("v6e-16", 4, 4),
    }
    assert node_pools().plan.changes == ()


def test_a_node_pool_for_an_unknown_accelerator_is_left_out_with_a_warning(
    cloud: GoogleCloud,
) -> None:
    up(standard=True).apply()
    node_pools("l4").apply()
    (pool,) = (each for each in cluster_of(cloud).node_pools if each.name == "kinetic-np-l4")
    pool.config.resource_labels["kinetic-accelerator"] = "v9-8"
    with pytest.warns(UserWarning, match="'kinetic-np-l4' is left out: There is no accelerator"):
        assert listed() == {}
    (problem,) = node_pools("l4").plan.problems
    assert "has machines='v9-8', and 'l4' is wanted" in problem.message


def cluster_of(cloud: GoogleCloud) -> Cluster:
    found = cloud.existing[f"{PROJECT}/container/clusters/us-central1-a/demo"]
    assert isinstance(found, Cluster)
    return found


def test_a_node_pool_waits_for_others_and_names_a_failure_and_a_permission(
    cloud: GoogleCloud, command: Callable[..., Result]
) -> None:
    def pool(*arguments: str) -> str:
        done = command("pool", *arguments, "--zone", "us-central1-a")
        assert done.exit_code == 0, done.stderr
        return done.stdout

    up(standard=True).apply()
    cloud.deny("container.clusters.update")
    with pytest.raises(CloudPermissionError, match=r"roles/container\.admin"):
        node_pools("l4").apply()
    cloud.allow_all()
    cloud.polls = 3
    limit = "NVIDIA-L4-GPUS-per-project-region"
    cloud.quotas[limit] = 0
    with pytest.warns(UserWarning, match=f"{limit} .* is 0, or not set, in us-central1"):
        node_pools("l4")
    cloud.quotas[limit] = 8
    busy = "Operation operation-1 is currently upgrading cluster demo. Please wait and try again once it is done."
    cloud.fail("CreateNodePool", grpc.StatusCode.FAILED_PRECONDITION, busy)
    cloud.fail_operation("CreateNodePool", "Quota exceeded: NVIDIA_L4_GPUS in us-central1")
    with pytest.raises(ProvisioningError, match="NVIDIA_L4_GPUS"):
        node_pools("l4").apply()
    (problem,) = node_pools("l4").plan.problems
    assert "it failed: ERROR Quota exceeded: NVIDIA_L4_GPUS" in problem.message
    assert "kinetic pool remove" in problem.hint
    (status,) = (each for each in list_pools(settings()) if not each.is_class)
    assert "NVIDIA_L4_GPUS" in status.problem
    with pytest.raises(ConfigurationError, match=r"No zone of us-central1 (?s:.*) us-central2"):
        node_pools("v4-8")

    cloud.polls = 1
    assert pool("remove", "kinetic-np-l4") == "Removed pool kinetic-np-l4.\n"
    added = pool("add", "--node-pool", "--accelerator", "l4", "--max-nodes", "2")
    assert added == "Added node pool kinetic-np-l4: l4, 0 to 2 machines.\n"
    assert "kinetic-np-l4" in pool("list")


def test_users_get_what_submitting_needs_and_keep_what_down_leaves(
    cloud: GoogleCloud, plane_of_clusters: Bed
) -> None:
    ada, team = "user:ada@example.com", "group:team@example.com"
    # Other tests use the same Kubernetes.
    namespace = f"team-{secrets.token_hex(3)}"
    up(users=["user:Ada@Example.com"], namespaces=[namespace]).apply()
    prepared = up(users=[team, ada], namespaces=[namespace])
    assert {step.resource.kind for step in prepared.plan.changes} == {"role", "users"}
    prepared.apply()
    assert up(users=[team, ada], namespaces=[namespace]).plan.changes == ()
    # Who is not named any more keeps the rights.
    assert up(namespaces=[namespace]).plan.changes == ()

    api = ApiServer(plane_of_clusters.access(namespace))
    bound = {each["subjects"][0]["name"] for each in api.list("RoleBinding")}
    assert {"ada@example.com", "team@example.com"} <= bound
    wrong = user_bindings(namespace, ada)[0]
    wrong["subjects"] = user_bindings(namespace, "user:Ada@Example.com")[0]["subjects"]
    api.apply(wrong)
    (step,) = up(users=[ada], namespaces=[namespace]).plan.changes
    assert (step.action, step.resource.kind) == ("change", "users")
    up(users=[ada], namespaces=[namespace]).apply()
    assert up(users=[ada], namespaces=[namespace]).plan.changes == ()
    builds = f"{PROJECT}/iam/serviceAccounts/kn-demo-builds@{PROJECT}.iam.gserviceaccount.com"
    (actor,) = cloud.policy(builds).bindings
    assert (actor.role, [*actor.members]) == ("roles/iam.serviceAccountUser", [team, ada])

    open_store(parse_location(f"gs://{JOBS}")).write("outputs/j/model", b"weights")
    prepared = down()
    (kept,) = (each for each in prepared.plan.steps if each.resource.name == JOBS)
    assert kept.detail.endswith(f"; these keep roles/storage.objectUser on it: {team}, {ada}")
    prepared.apply()
    assert down().plan.changes == ()
    rights = [
        f"resourcemanager/bindings/{role}/{who}" for role in USER_ROLES for who in (ada, team)
    ]
    left = [each for each in cloud.resources(PROJECT) if each not in apis(cloud)]
    assert sorted(left) == sorted([f"storage/buckets/{JOBS}", *rights])
    bucket = storage_client(Cloud(PROJECT, cloud.environment)).bucket(JOBS)
    members = [each["members"] for each in bucket.get_iam_policy().bindings]
    assert {ada, team} in [{*each} for each in members]


def test_a_user_that_cannot_be_bound_is_refused_at_the_start(cloud: GoogleCloud) -> None:
    with pytest.raises(KineticError, match="cannot be given a role"):
        up(users=["ada@example.com"])
    assert cloud.requests == []


def test_the_catalogue_is_read_once_a_day_if_it_can_be(cloud: GoogleCloud, tmp_path: Path) -> None:
    wanted = parse_priority("v6e-8")
    listed = known_prices(settings()).of(wanted)
    assert listed is not None
    assert (listed.per_hour, listed.source) == (21.6, "list price, us-central1, 2026-08-24")

    cloud.add_project("priced-project", number=5, apis=["cloudbilling.googleapis.com"])
    here = "us-central1"
    cloud.skus = [
        sku("Commitment v1: TpuV6e running in Iowa for 1 Year", 1.9, here, usage="Commit1Yr"),
        sku("Capacity Optimized TpuV6e running in Iowa", 5, here),
        sku("TpuV6e running in Iowa", 3.25, here, "us-east1"),
        sku("TpuV6e attached to Spot Preemptible VMs running in Iowa", 1, here),
        # Two SKUs that say different things of a region.
        sku("TpuV5e running in Iowa", 1, here),
        sku("TpuV5e running in Iowa", 2, here),
    ]
    for ask in (True, True, False):
        found = known_prices(settings(), ask=ask).of(wanted)
        assert found is not None
        assert (found.per_hour, found.source[:31]) == (26.0, "Google's catalogue, us-central1")
    assert len([each for each in cloud.requests if each.startswith("ListSkus")]) == 4
    # Its usage is not that of spot, and the other one is ambiguous.
    for name in ("v6e-8:spot", "v5e-8"):
        other = known_prices(settings()).of(parse_priority(name))
        assert other is not None
        assert other.source.startswith("list price")


def named(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of a command with those that name the cluster."""
    place: tuple[str, ...] = () if "--zone" in arguments else ("--zone", "us-central1")
    return (*arguments, "--project", PROJECT, "--cluster", "demo", *place)


@pytest.fixture
def kinetic(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """The command, as a process of its own."""

    def start(*arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kinetic_cli", *named(arguments)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )

    return start


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in this process: another one would import Google's clients for 1.5 s."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run(*named(arguments), home=tmp_path / "home")


def test_ctrl_c_says_how_far_it_came_and_the_command_continues(
    cloud: GoogleCloud, kinetic: Callable[..., subprocess.Popen[str]]
) -> None:
    asked = kinetic("up")
    _, errors = asked.communicate(timeout=120)
    assert (asked.returncode, "Run the command with --yes" in errors) == (1, True)
    assert cloud.changes == []

    first = kinetic("up", "--yes")
    assert first.stderr is not None
    assert any("… create cluster" in line for line in first.stderr)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 130
    assert "Not done: create role" in errors
    assert "Run the command again: it continues." in errors

    done = kinetic("up", "--yes")
    output, errors = done.communicate(timeout=120)
    assert done.returncode == 0, errors
    assert "export KINETIC_PROJECT=my-project KINETIC_ZONE=us-central1" in output


def test_the_options_of_a_project_are_those_of_its_file(
    cloud: GoogleCloud, command: Callable[..., Result], tmp_path: Path
) -> None:
    def dry_run(*arguments: str) -> tuple[str, str]:
        done = command("up", "--dry-run", *arguments)
        return done.stdout, done.stderr

    file = tmp_path / "kinetic.toml"
    file.write_text('acelerators = ["v6e-8"]')
    assert "Did you mean accelerators?" in dry_run()[1]
    assert cloud.requests == []
    file.write_text('cluster = "other"\naccelerators = ["v6e-8"]\nusers = ["user:ada@example.com"]')
    output, errors = dry_run()
    assert "Cluster demo in us-central1" in errors
    assert "$21.60/h in use" in output
    assert "users user:ada@example.com in the namespace default" in " ".join(output.split())
    assert max(map(len, output.splitlines())) <= 100
    plan = json.loads(dry_run("--json", "--accelerator", "l4")[0])
    assert [step["name"] for step in plan["steps"] if step["kind"] == "pool"] == ["l4"]
    file.write_text("standard = true\njobset = false")
    assert "JobSet" in dry_run("--no-standard", "--jobset")[0]
    file.write_text('accelerators = ["v6e-8"]')
    file.rename(tmp_path / "team.toml")
    assert "pool v6e-8" in dry_run("--config", "team.toml")[0]
    assert "cannot be read" in dry_run("--config", "kinetic.toml")[1]


def test_a_question_about_a_plan_as_json_comes_after_the_plan(
    cloud: GoogleCloud, kinetic: Callable[..., subprocess.Popen[str]]
) -> None:
    terminal, stdin = os.openpty()
    asked = kinetic("up", "--json", stdin=stdin)
    os.write(terminal, b"n\n")
    output, errors = asked.communicate(timeout=120)
    os.close(terminal)
    os.close(stdin)
    assert (output, asked.returncode) == ("", 130)
    assert re.search(r"create +5-10 min +\$73, the first \$0 +cluster(?s:.*)Make it\?", errors)
    assert cloud.changes == []


def test_init_without_a_terminal_asks_nothing_and_keeps_the_cluster_as_a_profile(
    cloud: GoogleCloud, command: Callable[..., Result]
) -> None:
    def init(*arguments: str) -> str:
        done = command("init", *arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout + done.stderr

    assert "--join|--create|--troubleshoot" in init()
    assert cloud.changes == []
    assert "it is the current profile" in init("--create", "--yes")
    changes = len(cloud.changes)
    assert "it is the current profile" in init("--join")
    assert "0 failed" in init("--troubleshoot")
    profile = Settings.from_environment()
    assert (profile.project.value, profile.zone.value) == (PROJECT, "us-central1")
    assert (profile.cluster.source, profile.backend.value) == ("profile 'demo'", "gke")
    assert made(cloud, changes) == []


def test_a_plan_with_problems_fails_as_json_and_by_init_too(
    cloud: GoogleCloud, command: Callable[..., Result]
) -> None:
    cloud.buckets.create_bucket(JOBS, project="stranger-project")
    asked = command("up", "--yes", "--json")
    assert asked.exit_code == 1
    assert [JOBS in each["message"] for each in json.loads(asked.stdout)["problems"]] == [True]
    assert "exists, and Kinetic did not make it" in asked.stderr
    chosen = command("init", "--create", "--yes")
    assert chosen.exit_code == 1
    assert f"Error: The bucket {JOBS} exists, and Kinetic did not make it" in chosen.stderr
    assert cloud.changes == []


def test_down_without_the_permission_to_read_removes_nothing_and_names_disks_at_its_end(
    cloud: GoogleCloud, command: Callable[..., Result]
) -> None:
    up().apply()
    changes = len(cloud.changes)
    cloud.deny("storage.buckets.get")
    with pytest.raises(CloudPermissionError, match=r"storage\.buckets\.get"):
        down()
    cloud.allow_all()
    cloud.deny("storage.objects.delete")
    removed = command("down", "--yes")
    assert (removed.exit_code, "roles/storage.admin" in removed.stderr) == (1, True)
    assert made(cloud, changes) == []

    cloud.allow_all()
    cloud.add_disk(PROJECT, "us-central1-a", "pvc-1", **{"goog-k8s-cluster-name": "demo"})
    removed = command("down", "--yes")
    assert (removed.exit_code, "The disk pvc-1 stays: " in removed.stderr) == (0, True)


def test_a_quota_that_is_too_low_is_a_warning_with_its_id(
    cloud: GoogleCloud, command: Callable[..., Result]
) -> None:
    def output_of(*arguments: str) -> str:
        done = command(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout + done.stderr

    family, spot = (
        "TPUS-PER-TPU-FAMILY-per-project-region",
        "PREEMPTIBLE-TPU-V6E-per-project-region",
    )
    up().apply()
    cloud.quotas |= {family: 2, spot: 2}
    assert f"{family} of the project 'my-project' is 2 in us-central1" in output_of(
        "up", "--accelerator", "v6e-4", "--yes"
    )
    assert f"{spot} of" in output_of("pool", "add", "--accelerator", "v6e-4", "--spot")
    found = {check.name: check for check in diagnose(settings()) if check.state != "pass"}
    assert {*found} >= {"quota of pool kinetic-v6e-4", "quota of pool kinetic-v6e-4-spot"}
    cloud.deny("cloudquotas.quotas.get")
    assert ("quotas of pools", "skip") in {(each.name, each.state) for each in diagnose(settings())}
    assert "quota" not in output_of("pool", "add", "--accelerator", "v6e-4", "--min-nodes", "1")
    refused = command("pool", "add", "--accelerator", "v6e-4", "--max-nodes", "2")
    assert "--node-pool" in refused.stderr
