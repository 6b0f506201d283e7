"""Which permission each method needs. Buckets' are in `kinetic_servers.gcs.access`."""

from __future__ import annotations

from typing import Final

GRPC: Final = {
    "google.api.serviceusage.v1.ServiceUsage": {
        "BatchEnableServices": "serviceusage.services.enable",
        "BatchGetServices": "serviceusage.services.get",
        "GetService": "serviceusage.services.get",
    },
    "google.cloud.resourcemanager.v3.Projects": {
        "GetIamPolicy": "resourcemanager.projects.getIamPolicy",
        "GetProject": "resourcemanager.projects.get",
        "SearchProjects": "",
        "SetIamPolicy": "resourcemanager.projects.setIamPolicy",
        "TestIamPermissions": "",
    },
    "google.iam.admin.v1.IAM": {
        "CreateServiceAccount": "iam.serviceAccounts.create",
        "DeleteServiceAccount": "iam.serviceAccounts.delete",
        "GetIamPolicy": "iam.serviceAccounts.getIamPolicy",
        "GetServiceAccount": "iam.serviceAccounts.get",
        "PatchServiceAccount": "iam.serviceAccounts.update",
        "SetIamPolicy": "iam.serviceAccounts.setIamPolicy",
        "TestIamPermissions": "",
    },
    "google.devtools.artifactregistry.v1.ArtifactRegistry": {
        "CreateRepository": "artifactregistry.repositories.create",
        "DeleteRepository": "artifactregistry.repositories.delete",
        "GetIamPolicy": "artifactregistry.repositories.getIamPolicy",
        "GetRepository": "artifactregistry.repositories.get",
        "ListRepositories": "artifactregistry.repositories.list",
        "SetIamPolicy": "artifactregistry.repositories.setIamPolicy",
        "TestIamPermissions": "",
        "UpdateRepository": "artifactregistry.repositories.update",
    },
    "google.container.v1.ClusterManager": {
        "CreateCluster": "container.clusters.create",
        "CreateNodePool": "container.clusters.update",
        "DeleteCluster": "container.clusters.delete",
        "DeleteNodePool": "container.clusters.update",
        "GetCluster": "container.clusters.get",
        "GetNodePool": "container.clusters.get",
        "GetOperation": "container.operations.get",
        "GetServerConfig": "container.clusters.list",
        "ListClusters": "container.clusters.list",
        "ListNodePools": "container.clusters.get",
        "ListOperations": "container.operations.list",
        "SetNodePoolAutoscaling": "container.clusters.update",
        "UpdateCluster": "container.clusters.update",
    },
    "google.api.cloudquotas.v1.CloudQuotas": {"GetQuotaInfo": "cloudquotas.quotas.get"},
    "google.cloud.billing.v1.CloudBilling": {
        "GetProjectBillingInfo": "resourcemanager.projects.get",
    },
    "google.cloud.billing.v1.CloudCatalog": {"ListSkus": ""},
    "google.longrunning.Operations": {"GetOperation": ""},
}
"""Service → method → its permission. `CreateCluster` needs `iam.serviceAccounts.actAs` on node accounts too."""

COMPUTE: Final = {
    "acceleratorTypes.aggregatedList": "compute.acceleratorTypes.list",
    "disks.aggregatedList": "compute.disks.list",
    "disks.delete": "compute.disks.delete",
    "disks.get": "compute.disks.get",
    "firewalls.delete": "compute.firewalls.delete",
    "firewalls.get": "compute.firewalls.get",
    "firewalls.insert": "compute.firewalls.create",
    "firewalls.list": "compute.firewalls.list",
    "machineTypes.aggregatedList": "compute.machineTypes.list",
    "networks.delete": "compute.networks.delete",
    "networks.get": "compute.networks.get",
    "networks.insert": "compute.networks.create",
    "networks.list": "compute.networks.list",
    "operations.get": "compute.globalOperations.get",
    "operations.wait": "compute.globalOperations.get",
    "regions.get": "compute.regions.get",
    "regions.list": "compute.regions.list",
    "routers.delete": "compute.routers.delete",
    "routers.get": "compute.routers.get",
    "routers.insert": "compute.routers.create",
    "routers.list": "compute.routers.list",
    "routers.patch": "compute.routers.update",
    "subnetworks.aggregatedList": "compute.subnetworks.list",
    "subnetworks.delete": "compute.subnetworks.delete",
    "subnetworks.get": "compute.subnetworks.get",
    "subnetworks.insert": "compute.subnetworks.create",
    "subnetworks.list": "compute.subnetworks.list",
    "zones.get": "compute.zones.get",
    "zones.list": "compute.zones.list",
}
"""Method → its permission; of operations it is that of global ones, whatever they are."""
