"""What each of Google's APIs refuses, and what it shows, with Google's own clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from google.iam.v1 import policy_pb2

from kinetic_servers.google import GoogleCloud

P = "projects/my-project"
L = f"{P}/locations/us-central1"
POOL = "//iam.googleapis.com/projects/{}/locations/global/workloadIdentityPools/{}.svc.id.goog"
SUBJECT = f"principal:{POOL.format(123456789012, 'my-project')}/subject/ns/default/sa/runner"
EMAIL = "worker@my-project.iam.gserviceaccount.com"


# --- Service Usage


def test_services_are_asked_for_and_enabled_in_limited_numbers(
    cloud: GoogleCloud, clients: Any
) -> None:
    cloud.add_project("poor", number=78, billing=False)
    names = [f"{P}/services/{each}.googleapis.com" for each in ("iam", "tpu", "storage")]
    found = clients.usage.batch_get_services(request={"parent": P, "names": names}).services
    assert [each.state.name for each in found] == ["ENABLED", "DISABLED", "ENABLED"]
    for method, request, problem in (
        ("get", {"parent": P, "names": names[:1] * 31}, "between 1 and 30"),
        ("enable", {"parent": P, "service_ids": ["iam.googleapis.com"] * 21}, "between 1 and 20"),
        ("enable", {"parent": P, "service_ids": ["x.googleapis.com"]}, "Not found or permission"),
        ("enable", {"parent": "projects/poor", "service_ids": ["tpu.googleapis.com"]}, "Billing"),
    ):
        with pytest.raises(exceptions.GoogleAPICallError, match=f"(?i){problem}"):
            getattr(clients.usage, f"batch_{method}_services")(request=request)
    again = {"parent": P, "service_ids": ["iam.googleapis.com"]}
    assert clients.usage.batch_enable_services(request=again).done()
    assert cloud.changes == []


# --- Policies


def test_a_policy_that_was_changed_meanwhile_is_not_overwritten(
    cloud: GoogleCloud, clients: Any
) -> None:
    old = clients.projects.get_iam_policy(resource=P)
    new = clients.bind("user:a@b.test")
    assert new.etag != old.etag
    old.bindings.add(role="roles/logging.viewer", members=["user:c@d.test"])
    with pytest.raises(exceptions.Aborted, match="There were concurrent policy changes"):
        clients.projects.set_iam_policy(request={"resource": P, "policy": old})
    assert clients.bind("user:a@b.test") == new, "nothing changed"
    assert len(cloud.changes) == 1
    del new.bindings[:]
    with pytest.raises(exceptions.FailedPrecondition, match="at least one owner"):
        clients.projects.set_iam_policy(request={"resource": P, "policy": new})


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        ("user:me@example.com", None),
        ("group:all@example.com", None),
        ("serviceAccount:service-1@container-engine-robot.iam.gserviceaccount.com", None),
        (f"serviceAccount:{EMAIL}", f"Service account {EMAIL} does not exist"),
        (f"deleted:serviceAccount:{EMAIL}?uid=1", "is not a deleted one"),
        ("me@example.com", "is of an unknown type"),
        ("user:me", "is of an unknown type"),
        ("allUsers", "is of an unknown type"),
        (SUBJECT, r"Identity Pool does not exist \(my-project.svc.id.goog\)"),
        ("serviceAccount:my-project.svc.id.goog[default/runner]", "Identity Pool does not exist"),
    ],
)
def test_a_member_must_exist(clients: Any, member: str, problem: str | None) -> None:
    if problem is None:
        clients.bind(member)
        return
    with pytest.raises(exceptions.InvalidArgument, match=problem):
        clients.bind(member)


def test_a_pool_exists_from_the_first_cluster_on(clients: Any) -> None:
    clients.network()
    operation = clients.cluster()
    with pytest.raises(exceptions.InvalidArgument, match="Identity Pool"):
        clients.bind(SUBJECT)
    clients.ended(operation)
    clients.ended(clients.gke.delete_cluster(name=f"{L}/clusters/c"))
    clients.bind(SUBJECT)
    for wrong in (SUBJECT.replace("123456789012", "5"), SUBJECT.replace("subject/ns", "subject")):
        with pytest.raises(exceptions.InvalidArgument):
            clients.bind(wrong)


def test_roles_and_conditions_are_checked(clients: Any) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=r"roles/storage\.objctViewer is not supp"):
        clients.bind("user:a@b.test", "roles/storage.objctViewer")
    bucket = clients.bucket()
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy["roles/logging.logWriter"] = {"user:a@b.test"}
    with pytest.raises(exceptions.BadRequest, match=r"roles/logging\.logWriter is not supported"):
        bucket.set_iam_policy(policy)
    for permission in ("container.clusters", "container.*.get"):
        with pytest.raises(exceptions.InvalidArgument, match="is not valid for this resource"):
            clients.projects.test_iam_permissions(resource=P, permissions=[permission])
    policy = clients.projects.get_iam_policy(resource=P)
    binding = policy.bindings.add(role="roles/logging.viewer", members=["user:a@b.test"])
    binding.condition.expression = "true"
    with pytest.raises(exceptions.InvalidArgument, match="version 3"):
        clients.projects.set_iam_policy(request={"resource": P, "policy": policy})
    policy.version = 3
    clients.projects.set_iam_policy(request={"resource": P, "policy": policy})
    # Who does not ask for version 3 sees no condition, and cannot write the policy back.
    old = clients.projects.get_iam_policy(resource=P)
    assert "roles/logging.viewer_withcond_" in str(old)
    with pytest.raises(exceptions.InvalidArgument, match="_withcond_"):
        clients.projects.set_iam_policy(request={"resource": P, "policy": old})
    kept = clients.bind("user:c@d.test").bindings
    assert [each.condition.expression for each in kept if each.HasField("condition")] == ["true"]


# --- Service accounts


@pytest.mark.parametrize("name", ["short", "a" * 31, "Upper-case", "1-digit", "ends-with-"])
def test_an_invalid_id_of_an_account_is_refused(clients: Any, name: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="account ID"):
        clients.account(name)


def test_an_account_is_deleted_softly(cloud: GoogleCloud, clients: Any) -> None:
    first = clients.account(display_name="Worker")
    with pytest.raises(exceptions.AlreadyExists, match="already exists within project"):
        clients.account()
    clients.bind(f"serviceAccount:{EMAIL}")
    clients.repository().result(timeout=20)
    repository = f"{L}/repositories/kinetic"
    binding = {"role": "roles/artifactregistry.reader", "members": [f"serviceAccount:{EMAIL}"]}
    policy = {"bindings": [binding]}
    clients.registry.set_iam_policy(request={"resource": repository, "policy": policy})
    bucket = clients.bucket()
    granted = bucket.get_iam_policy(requested_policy_version=3)
    granted["roles/storage.objectUser"] = {f"serviceAccount:{EMAIL}"}
    bucket.set_iam_policy(granted)

    clients.iam.delete_service_account(name=f"projects/-/serviceAccounts/{EMAIL}")
    with pytest.raises(exceptions.NotFound):
        clients.iam.get_service_account(name=first.name)
    second = clients.account()

    assert second.unique_id != first.unique_id
    buried = f"deleted:serviceAccount:{EMAIL}?uid={first.unique_id}"
    for found in (
        clients.projects.get_iam_policy(resource=P).bindings[0].members,
        clients.registry.get_iam_policy(request={"resource": repository}).bindings[0].members,
        bucket.get_iam_policy()["roles/storage.objectUser"],
    ):
        assert list(found) == [buried]
    clients.bind("user:a@b.test")  # The deleted member may stay.


def test_a_new_account_is_not_seen_at_once(cloud: GoogleCloud, clients: Any) -> None:
    cloud.lag = 2
    name = clients.account().name
    with pytest.raises(exceptions.AlreadyExists):
        clients.account()
    with pytest.raises(exceptions.NotFound):
        clients.iam.get_service_account(name=name)
    with pytest.raises(exceptions.InvalidArgument, match="does not exist"):
        clients.bind(f"serviceAccount:{EMAIL}")
    clients.bind(f"serviceAccount:{EMAIL}")


def test_an_account_is_changed_by_its_mask_and_has_a_policy(
    cloud: GoogleCloud, clients: Any
) -> None:
    name = clients.account(display_name="old", description="kept").name
    changed = {"name": name, "display_name": "new", "description": "no"}
    request = {"service_account": changed, "update_mask": {"paths": ["display_name"]}}
    found = clients.iam.patch_service_account(request=request)
    assert (found.display_name, found.description) == ("new", "kept")
    request["update_mask"] = {"paths": ["email"]}
    with pytest.raises(exceptions.InvalidArgument):
        clients.iam.patch_service_account(request=request)
    binding = policy_pb2.Binding(role="roles/iam.serviceAccountUser", members=["user:a@b.test"])
    policy = policy_pb2.Policy(bindings=[binding])
    clients.iam.set_iam_policy(request={"resource": name, "policy": policy})
    assert list(clients.iam.get_iam_policy(request={"resource": name}).bindings) == [binding]
    assert cloud.changes[1:] == [f"PatchServiceAccount {name}", f"SetIamPolicy {name}"]


# --- Artifact Registry


def test_repositories(clients: Any) -> None:
    clients.repository().result(timeout=20)
    name = f"{L}/repositories/kinetic"
    for problem, act in (
        ("already exists", clients.repository),
        ("format", lambda: clients.repository("b", format_="FORMAT_UNSPECIFIED")),
        ("label", lambda: clients.repository("b", labels={"A": "b"})),
        ("ID", lambda: clients.repository("Upper")),
        ("another id", lambda: clients.repository("b", cleanup_policies={"x": {"id": "y"}})),
        ("needs an action", lambda: clients.repository("b", cleanup_policies={"x": {"id": "x"}})),
        ("not found", lambda: clients.registry.get_repository(name=f"{L}/repositories/b")),
    ):
        with pytest.raises(exceptions.GoogleAPICallError, match=problem):
            act()
    recent = {"id": "x", "action": "KEEP", "most_recent_versions": {"keep_count": 3}}
    changed = {"name": name, "labels": {}, "cleanup_policies": {"x": recent}}
    mask = {"paths": ["cleanup_policies"]}
    request = {"repository": changed, "update_mask": mask}
    found = clients.registry.update_repository(request=request)
    assert dict(found.labels) == {"a": "b"}
    assert found.cleanup_policies["x"].most_recent_versions.keep_count == 3
    for each in ("c", "d"):
        clients.repository(each).result(timeout=20)
    pager = clients.registry.list_repositories(request={"parent": L, "page_size": 2})
    assert [[one.name[-1] for one in page.repositories] for page in pager.pages] == [
        ["c", "d"],
        ["c"],
    ]


# --- GKE


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "a" * 41}, "cluster.name"),
        ({"name": "c-"}, "cluster.name"),
        ({"network": "m"}, 'Project "my-project" has no network named "m"'),
        ({"network": ""}, 'has no network named "default"'),
        ({"subnetwork": "m"}, 'Subnetwork "m" of network "n" was not found'),
        ({"subnetwork": ""}, "requires a subnetwork"),
        ({"resource_labels": {"Upper": "x"}}, "resource label"),
        ({"resource_labels": {"a": "x y"}}, "resource label"),
        ({"workload_identity_config": {"workload_pool": "x.svc.id.goog"}}, "only supported workload pool"),
        ({"autopilot": {"enabled": False}}, "either initial_node_count or node_pools"),
        ({"initial_node_count": 1}, "Node pools cannot be specified"),
        ({"autoscaling": {"autoprovisioning_node_pool_defaults": {"service_account": EMAIL}}}, f'Service account "{EMAIL}" does not exist'),
    ],
)  # fmt: skip
def test_a_cluster_that_the_service_refuses(
    cloud: GoogleCloud, clients: Any, fields: dict[str, Any], problem: str
) -> None:
    clients.network()
    with pytest.raises(exceptions.InvalidArgument, match=problem):
        clients.cluster(**fields)
    assert len(cloud.changes) == 2


def test_an_autopilot_cluster_is_regional_and_has_its_defaults(
    cloud: GoogleCloud, clients: Any
) -> None:
    clients.network()
    cluster = {"name": "c", "network": "n", "subnetwork": "n", "autopilot": {"enabled": True}}
    with pytest.raises(exceptions.InvalidArgument, match="must be regional"):
        clients.gke.create_cluster(parent=f"{P}/locations/us-central1-a", cluster=cluster)
    clients.ended(clients.cluster(resource_labels={"a": "b"}))
    found = clients.gke.get_cluster(name=f"{L}/clusters/c")
    assert found.addons_config.gcs_fuse_csi_driver_config.enabled
    assert found.workload_identity_config.workload_pool == "my-project.svc.id.goog"
    endpoint = found.control_plane_endpoints_config.dns_endpoint_config.endpoint
    assert endpoint.endswith("-123456789012.us-central1.gke.goog")
    assert (found.location, found.release_channel.channel.name) == ("us-central1", "REGULAR")
    with pytest.raises(exceptions.InvalidArgument, match="Autopilot"):
        clients.gke.create_node_pool(parent=f"{L}/clusters/c", node_pool={"name": "p"})
    versions = clients.gke.get_server_config(name=L).valid_master_versions
    assert found.current_master_version in versions


def test_a_nodes_account_needs_the_permission_to_act_as_it(
    cloud: GoogleCloud, clients: Any
) -> None:
    clients.network()
    clients.account()
    cloud.deny("iam.serviceAccounts.actAs")
    defaults = {"autoprovisioning_node_pool_defaults": {"service_account": EMAIL}}
    for fields, account in (({"autoscaling": defaults}, EMAIL), ({}, "default")):
        words = f'does not have access to service account "{account}"'
        with pytest.raises(exceptions.InvalidArgument, match=words):
            clients.cluster(**fields)
    cloud.allow_all()
    clients.cluster(autoscaling=defaults)


def test_one_operation_changes_a_cluster_at_a_time(cloud: GoogleCloud, clients: Any) -> None:
    clients.network()
    cloud.polls = 3
    operation = clients.cluster()
    name = f"{L}/clusters/c"
    with pytest.raises(exceptions.FailedPrecondition) as error:
        clients.gke.delete_cluster(name=name)
    assert error.value.message == (
        f"Operation {operation.name} is currently creating cluster c. Please wait and try again once it is done."
    )
    with pytest.raises(exceptions.AlreadyExists):
        clients.cluster()
    assert clients.gke.get_cluster(name=name).status.name == "PROVISIONING"
    listed = clients.gke.list_operations(parent=f"{P}/locations/-").operations
    assert [(each.name, each.status.name) for each in listed] == [(operation.name, "RUNNING")]
    clients.ended(operation)
    assert clients.gke.list_clusters(parent=L).clusters[0].status.name == "RUNNING"
    cloud.polls = 2
    update = {"desired_addons_config": {"http_load_balancing": {"disabled": True}}}
    operation = clients.gke.update_cluster(request={"name": name, "update": update})
    for status in ("RUNNING", "DONE"):
        assert clients.ended(operation).status.name == status
    addons = clients.gke.get_cluster(name=name).addons_config
    assert addons.http_load_balancing.disabled
    assert addons.gcs_fuse_csi_driver_config.enabled
    with pytest.raises(exceptions.InvalidArgument, match="exactly one"):
        clients.gke.update_cluster(request={"name": name, "update": {}})
    operation = clients.gke.delete_cluster(name=name)
    assert clients.gke.get_cluster(name=name).status.name == "STOPPING"
    clients.ended(operation)
    with pytest.raises(exceptions.NotFound, match=f"Not found: {name}"):
        clients.gke.get_cluster(name=name)


def test_node_pools_of_a_standard_cluster(cloud: GoogleCloud, clients: Any) -> None:
    clients.network()
    clients.ended(clients.cluster(autopilot={}, initial_node_count=1))
    name = f"{L}/clusters/c"
    clients.ended(clients.gke.create_node_pool(parent=name, node_pool={"name": "tpu"}))
    with pytest.raises(exceptions.AlreadyExists):
        clients.gke.create_node_pool(parent=name, node_pool={"name": "tpu"})
    pools = clients.gke.list_node_pools(parent=name).node_pools
    assert [(each.name, each.status.name) for each in pools] == [
        ("default-pool", "RUNNING"),
        ("tpu", "RUNNING"),
    ]
    assert "container/nodePools/us-central1/c/tpu" in cloud.resources()
    clients.ended(clients.gke.delete_node_pool(name=f"{name}/nodePools/tpu"))
    assert len(clients.gke.list_node_pools(parent=name).node_pools) == 1


@pytest.mark.parametrize("left", [True, False])
def test_the_firewall_rules_of_a_cluster_keep_its_network(
    cloud: GoogleCloud, clients: Any, left: bool
) -> None:
    clients.network()
    clients.ended(clients.cluster())
    link = clients.compute("GET", "global/networks/n")["selfLink"]
    rules = f'global/firewalls?filter=network="{link}"'
    assert len(clients.compute("GET", rules)["items"]) == 2
    error = clients.compute("DELETE", "regions/us-central1/subnetworks/n", status=400)["error"]
    assert f"is already being used by '{P}/zones/us-central1-a/instances/gke-c-" in error["message"]
    cloud.leave_firewalls = left
    clients.ended(clients.gke.delete_cluster(name=f"{L}/clusters/c"))
    clients.done("DELETE", "regions/us-central1/subnetworks/n")
    found = clients.compute("GET", rules).get("items", [])
    assert bool(found) == left
    if left:
        error = clients.compute("DELETE", "global/networks/n", status=400)["error"]
        assert error["errors"][0]["reason"] == "resourceInUseByAnotherResource"
        assert f"is already being used by '{P}/global/firewalls/gke-c-" in error["message"]
        cloud.late_refusals = True
        failed = clients.done("DELETE", "global/networks/n")["error"]["errors"][0]
        assert failed["code"] == "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
        for each in found:
            clients.done("DELETE", f"global/firewalls/{each['name']}")
    clients.done("DELETE", "global/networks/n")
    assert not [each for each in cloud.resources() if each.startswith("compute/")]


# --- Compute

N = "global/networks/n"
SUBNETWORK = {"name": "s", "network": N, "ipCidrRange": "10.9.0.0/20"}
NAT = {
    "name": "nat",
    "natIpAllocateOption": "AUTO_ONLY",
    "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
}


@pytest.mark.parametrize(
    ("place", "body", "status", "reason", "problem"),
    [
        ("global/networks", {"name": "n", "autoCreateSubnetworks": False}, 409, "alreadyExists", f"The resource '{P}/{N}' already exists"),
        ("global/networks", {"name": "N", "autoCreateSubnetworks": False}, 400, "invalid", "Must be a match of regex"),
        ("global/networks", {"name": "m"}, 400, "invalid", "Legacy networks"),
        ("global/networks", {"name": "m", "autoCreateSubnetworks": "no"}, 400, "badRequest", "Invalid value at 'autoCreateSubnetworks'"),
        ("regions/us-central1/subnetworks", {**SUBNETWORK, "network": "global/networks/m"}, 404, "notFound", f"The resource '{P}/global/networks/m' was not found"),
        ("regions/us-central1/subnetworks", {**SUBNETWORK, "network": "n"}, 400, "invalid", "The URL is malformed"),
        ("regions/us-central1/subnetworks", {**SUBNETWORK, "ipCidrRange": "10.0.8.0/24"}, 400, "invalid", "conflicts with existing subnetwork 'n'"),
        ("regions/us-central1/subnetworks", {**SUBNETWORK, "ipCidrRange": "10.9.0.1/20"}, 400, "invalid", "not a range"),
        ("regions/mars/subnetworks", SUBNETWORK, 400, "invalid", "Unknown region"),
        ("regions/us-central1/routers", {"name": "r", "network": N, "nats": [{"name": "nat"}]}, 400, "invalid", "natIpAllocateOption"),
        ("global/firewalls", {"name": "f", "network": N}, 400, "invalid", "Exactly one of allowed or denied"),
        ("global/disks", {"name": "d"}, 404, "notFound", "was not found on this server"),
    ],
)  # fmt: skip
def test_a_resource_that_compute_refuses(
    cloud: GoogleCloud, clients: Any, place: str, body: Any, status: int, reason: str, problem: str
) -> None:
    clients.network()
    error = clients.compute("POST", place, status=status, **body)["error"]
    assert (error["code"], error["errors"][0]["reason"]) == (status, reason)
    assert problem in error["message"]
    assert len(cloud.changes) == 2


def test_what_an_operation_still_makes_cannot_be_used(cloud: GoogleCloud, clients: Any) -> None:
    cloud.polls = 3
    operation = clients.compute("POST", "global/networks", name="n", autoCreateSubnetworks=False)
    assert operation["status"] == "RUNNING"
    place = "regions/us-central1/subnetworks"
    error = clients.compute("POST", place, status=400, **SUBNETWORK)["error"]
    assert error["errors"][0]["reason"] == "resourceNotReady"
    clients.compute("GET", N)
    clients.compute("GET", N)
    clients.compute("POST", place, **SUBNETWORK)
    cloud.dies_after(0)
    clients.compute("GET", N, status=401)
    cloud.revive()
    cloud.polls = 1
    assert clients.done("DELETE", f"{place}/s")["status"] == "DONE"
    clients.compute("GET", f"{place}/s", status=404)


def test_a_router_is_patched_and_keeps_its_network(cloud: GoogleCloud, clients: Any) -> None:
    clients.network()
    place = "regions/us-central1/routers"
    clients.done("POST", place, name="r", network=N)
    changes = len(cloud.changes)
    clients.done("PATCH", f"{place}/r", nats=[NAT])
    clients.done("PATCH", f"{place}/r", nats=[NAT])
    assert clients.compute("GET", f"{place}/r")["nats"] == [NAT]
    assert len(cloud.changes) == changes + 1, "the same again changes nothing"
    clients.done("DELETE", "regions/us-central1/subnetworks/n")
    error = clients.compute("DELETE", N, status=400)["error"]
    assert f"'{P}/{place}/r'" in error["message"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("name=kn-a", ["kn-a"]),
        ("name = kn-*", ["kn-a", "kn-b"]),
        ('name eq "kn-.*"', ["kn-a", "kn-b"]),
        ("name!=kn-a", ["kn-b", "other"]),
        ("(name=kn-a) OR (name=other)", ["kn-a", "other"]),
        ("(labels.by=kinetic) (name ne kn-b)", ["kn-a"]),
        ("labels.by:*", ["kn-a", "kn-b"]),
        ("labels.by=kinetic AND -name=kn-a", ["kn-b"]),
    ],
)
def test_disks_are_filtered(
    cloud: GoogleCloud, clients: Any, expression: str, expected: list[str]
) -> None:
    cloud.add_disk("my-project", "us-central1-a", "kn-a", by="kinetic")
    cloud.add_disk("my-project", "us-central1-b", "kn-b", by="kinetic")
    cloud.add_disk("my-project", "us-central1-a", "other")
    found = clients.compute("GET", f"aggregated/disks?filter={expression}")["items"]
    names = [each["name"] for zone in found.values() for each in zone.get("disks", ())]
    assert sorted(names) == expected
    assert found["zones/us-east1-b"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"


def test_lists_have_pages_and_zones_have_machines(clients: Any) -> None:
    names, token = [], ""
    while token is not None:
        page = clients.compute("GET", f"zones?maxResults=7&pageToken={token}")
        names += [each["name"] for each in page["items"]]
        token = page.get("nextPageToken")
    assert len(names) == len(set(names)) > 14
    for what, name, zone in (
        ("machineTypes", "ct6e-standard-4t", "us-east5-a"),
        ("acceleratorTypes", "nvidia-l4", "us-central1-b"),
    ):
        found = clients.compute("GET", f"aggregated/{what}?filter=name={name}")["items"]
        assert [each["name"] for each in found[f"zones/{zone}"][what]] == [name]
        assert what not in found["zones/us-south1-a"]
    zones = clients.compute("GET", "regions/us-central1")["zones"]
    assert [each.rpartition("-")[2] for each in zones] == ["a", "b", "c", "f"]
    clients.compute("GET", "regions/mars", status=404)
    clients.compute("GET", "zones?filter=(", status=400)
    clients.compute("GET", "zones?maxResult=7", status=400)


# --- Buckets


def test_a_bucket_has_fields_that_can_be_patched(cloud: GoogleCloud, clients: Any) -> None:
    bucket = clients.storage.bucket("my-bucket")
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.iam_configuration.public_access_prevention = "enforced"
    bucket.add_lifecycle_delete_rule(age=30, matches_prefix=["jobs/"])
    bucket.soft_delete_policy.retention_duration_seconds = 0
    bucket.labels = {"by": "kinetic", "old": "x"}
    bucket.create(location="us-central1")
    found = clients.storage.get_bucket("my-bucket")
    assert (found.location, found.project_number) == ("US-CENTRAL1", 123456789012)
    assert found.iam_configuration.uniform_bucket_level_access_enabled
    assert found.iam_configuration.public_access_prevention == "enforced"
    assert found.soft_delete_policy.retention_duration_seconds == 0
    condition = {"age": 30, "matchesPrefix": ["jobs/"]}
    assert list(found.lifecycle_rules) == [{"action": {"type": "Delete"}, "condition": condition}]

    found.labels = {"by": "kinetic"}
    found.clear_lifecyle_rules()
    found.patch(if_metageneration_match=1)
    found = clients.storage.get_bucket("my-bucket")
    assert (found.labels, list(found.lifecycle_rules)) == ({"by": "kinetic"}, [])
    assert (found.metageneration, found.soft_delete_policy.retention_duration_seconds) == (2, 0)
    found.labels = {}
    with pytest.raises(exceptions.PreconditionFailed):
        found.patch(if_metageneration_match=1)
    assert cloud.changes == ["buckets.insert my-bucket", "buckets.patch my-bucket"]


@pytest.mark.parametrize(
    "fields",
    [
        {"location": "mars"},
        {"labels": {"Upper": "x"}},
        {"softDeletePolicy": {"retentionDurationSeconds": 60}},
        {"iamConfiguration": {"publicAccessPrevention": "yes"}},
        {"lifecycle": {"rule": [{"action": {"type": "Remove"}, "condition": {"age": 1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": -1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": "x"}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"matchesPrefix": []}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"isLive": True}}]}},
    ],
)  # fmt: skip
def test_a_bucket_that_the_service_refuses(cloud: GoogleCloud, fields: Any) -> None:
    url = f"{cloud.buckets.endpoint}/storage/v1/b?project=my-project"
    answer = requests.post(url, json={"name": "my-bucket", **fields}, timeout=9)
    assert (answer.status_code, cloud.changes) == (400, [])


def test_the_policy_of_a_bucket(cloud: GoogleCloud, clients: Any) -> None:
    def give(bucket: storage.Bucket, member: str, policy: Any = None) -> None:
        policy = policy or bucket.get_iam_policy(requested_policy_version=3)
        policy["roles/storage.objectUser"].add(member)
        bucket.set_iam_policy(policy)

    plain = clients.storage.create_bucket("plain")
    with pytest.raises(exceptions.BadRequest, match="uniform bucket-level access"):
        give(plain, "user:a@b.test")
    bucket = clients.bucket()
    old = bucket.get_iam_policy(requested_policy_version=3)
    assert old["roles/storage.legacyBucketReader"] == {"projectViewer:my-project"}
    give(bucket, "user:a@b.test")
    with pytest.raises(exceptions.PreconditionFailed):
        give(bucket, "user:c@d.test", old)
    with pytest.raises(exceptions.BadRequest, match="does not exist"):
        give(bucket, f"serviceAccount:{EMAIL}")
    give(bucket, "allUsers")
    bucket.iam_configuration.public_access_prevention = "enforced"
    bucket.patch()
    with pytest.raises(exceptions.PreconditionFailed, match="public access prevention"):
        give(bucket, "allUsers")
    cloud.deny("storage.objects.get")
    asked = ["storage.objects.get", "storage.objects.list"]
    assert bucket.test_iam_permissions(asked) == ["storage.objects.list"]


def test_the_name_of_a_strangers_bucket_is_taken(cloud: GoogleCloud, clients: Any) -> None:
    cloud.buckets.create_bucket("my-bucket", project="strange")
    with pytest.raises(exceptions.Conflict, match="bucket namespace is shared by all users"):
        clients.bucket()
    acts: list[Callable[[], object]] = [
        lambda: clients.storage.get_bucket("my-bucket"),
        lambda: list(clients.storage.list_blobs("my-bucket")),
        lambda: clients.storage.bucket("my-bucket").delete(),
    ]
    for act in acts:
        with pytest.raises(exceptions.Forbidden, match="does not have storage"):
            act()
    assert not [each for each in cloud.resources() if each.startswith("storage/")]
