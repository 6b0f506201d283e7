"""Service accounts."""

from __future__ import annotations

from typing import ClassVar

from google.api_core import exceptions
from google.cloud import iam_admin_v1

from kinetic.provisioning.edge import Edge, Needs
from kinetic.provisioning.plan import Actual, Resource


class AccountsEdge(Edge):
    """Makes service accounts; none of them gets a key."""

    service = "iam.googleapis.com"
    needs: ClassVar[Needs] = {
        "create": ("iam.serviceAccounts.create", "iam.serviceAccounts.get"),
        "delete": ("iam.serviceAccounts.delete",),
    }

    def read(self, resource: Resource) -> Actual | None:
        """Return the account."""
        found = self._cloud.ask(
            f"read the {resource.id}", self._client.get_service_account, name=self._path(resource)
        )
        return None if found is None else Actual(ours=found.description == self._mark)

    def create(self, resource: Resource) -> None:
        """Make the account, and wait until it can be seen: it takes some seconds."""
        self._cloud.change(
            f"create the {resource.id}",
            self._client.create_service_account,
            made=exceptions.AlreadyExists,
            name=f"projects/{self._cloud.project}",
            account_id=resource.name.partition("@")[0],
            service_account={"display_name": "Kinetic", "description": self._mark},
        )
        self._cloud.wait(lambda: self.read(resource) is not None)

    def delete(self, resource: Resource) -> None:
        """Delete the account."""
        self._cloud.ask(
            f"delete the {resource.id}",
            self._client.delete_service_account,
            name=self._path(resource),
        )

    def _path(self, resource: Resource) -> str:
        return f"projects/{self._cloud.project}/serviceAccounts/{resource.name}"

    @property
    def _client(self) -> iam_admin_v1.IAMClient:
        return self._cloud.client("iam", iam_admin_v1.IAMClient)
