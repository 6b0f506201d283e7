"""Service accounts."""

from __future__ import annotations

from typing import ClassVar

from google.api_core import exceptions
from google.cloud import iam_admin_v1

from kinetic.provisioning.edge import Edge, Needs, description_of
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.plan import Actual, Resource


class AccountsEdge(Edge):
    """Makes service accounts; none of them gets a key."""

    service = "iam.googleapis.com"
    needs: ClassVar[Needs] = {
        "create": ("iam.serviceAccounts.create", "iam.serviceAccounts.get"),
        "delete": ("iam.serviceAccounts.delete",),
    }

    def __init__(self, cloud: Cloud, cluster: str) -> None:
        self._cloud = cloud
        self._mark = description_of(cluster)

    def read(self, resource: Resource) -> Actual | None:
        """Return the account."""
        asked = iam_admin_v1.GetServiceAccountRequest(name=self._path(resource))
        found = self._cloud.ask(
            f"read the {resource.id}",
            lambda: self._client.get_service_account(
                request=asked, retry=None, timeout=self._cloud.timeout
            ),
        )
        if found is None:
            return None
        return Actual(ours=found.description == self._mark)

    def create(self, resource: Resource) -> None:
        """Make the account, and wait until it can be seen: it takes some seconds."""
        asked = iam_admin_v1.CreateServiceAccountRequest(
            name=f"projects/{self._cloud.project}",
            account_id=resource.name.partition("@")[0],
            service_account=iam_admin_v1.ServiceAccount(
                display_name="Kinetic", description=self._mark
            ),
        )

        def create() -> None:
            try:
                self._client.create_service_account(
                    request=asked, retry=None, timeout=self._cloud.timeout
                )
            except exceptions.AlreadyExists:
                return

        self._cloud.change(f"create the {resource.id}", create)
        self._cloud.wait(lambda: self.read(resource) is not None)

    def delete(self, resource: Resource) -> None:
        """Delete the account."""
        asked = iam_admin_v1.DeleteServiceAccountRequest(name=self._path(resource))
        self._cloud.ask(
            f"delete the {resource.id}",
            lambda: self._client.delete_service_account(
                request=asked, retry=None, timeout=self._cloud.timeout
            ),
        )

    def _path(self, resource: Resource) -> str:
        return f"projects/{self._cloud.project}/serviceAccounts/{resource.name}"

    @property
    def _client(self) -> iam_admin_v1.IAMClient:
        return self._cloud.client("iam", iam_admin_v1.IAMClient)
