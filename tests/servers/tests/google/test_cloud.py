"""The servers of all Google APIs: what they make, refuse and lose, with Google's own clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic_servers.google import GoogleCloud

if TYPE_CHECKING:
    from conftest import Clients

P = "projects/my-project"
L = f"{P}/locations/us-central1"


def test_everything_can_be_made_and_removed(cloud: GoogleCloud, clients: Clients) -> None:
    before = cloud.resources()
    services = ["tpu.googleapis.com"]
    clients.usage.batch_enable_services(request={"parent": P, "service_ids": services}).result(
        timeout=20
    )
    clients.network()
    account = clients.account()
    clients.bind(f"serviceAccount:{account.email}")
    repository = {"format_": "DOCKER", "labels": {"a": "b"}}
    made = clients.registry.create_repository(
        parent=L, repository=repository, repository_id="kinetic"
    ).result(timeout=20)
    assert made.registry_uri == "us-central1-docker.pkg.dev/my-project/kinetic"
    operation = clients.cluster()
    assert clients.gke.get_operation(name=f"{L}/operations/{operation.name}").status.name == "DONE"
    found = clients.gke.get_cluster(name=f"{L}/clusters/c")
    assert found.status.name == "RUNNING"
    assert found.endpoint == "203.0.113.7:8443"
    pool = "my-project.svc.id.goog"
    subject = f"workloadIdentityPools/{pool}/subject/ns/default/sa/runner"
    clients.bind(f"principal://iam.googleapis.com/projects/123456789012/locations/global/{subject}")
    bucket = clients.storage.bucket("my-bucket")
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.create(location="us-central1")
    bucket.blob("o").upload_from_string(b"data")

    for blob in bucket.list_blobs():
        blob.delete()
    bucket.delete()
    operation = clients.gke.delete_cluster(name=f"{L}/clusters/c")
    clients.ended(operation)
    clients.registry.delete_repository(name=made.name).result(timeout=20)
    clients.iam.delete_service_account(name=account.name)
    clients.done("DELETE", "regions/us-central1/subnetworks/n")
    clients.done("DELETE", "global/networks/n")
    assert cloud.changes[-1] == f"DELETE {P}/global/networks/n"
    left = "resourcemanager/bindings/roles/logging.logWriter/"
    assert [each.removeprefix(left) for each in cloud.resources() if each not in before] == [
        f"deleted:serviceAccount:{account.email}?uid={account.unique_id}",
        f"principal://iam.googleapis.com/projects/123456789012/locations/global/{subject}",
        "serviceusage/services/tpu.googleapis.com",
    ]
