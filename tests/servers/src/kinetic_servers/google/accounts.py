"""Identity and Access Management: service accounts, which are deleted softly."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.cloud import iam_admin_v1 as iam
from google.protobuf import empty_pb2

from kinetic_servers.google.apis import Rpcs, rpcs
from kinetic_servers.google.places import parts_of
from kinetic_servers.google.policies import PolicyCalls, bury
from kinetic_servers.google.state import State, invalid, not_found, taken

_ID: Final = re.compile(r"(?=.{6,30}$)[a-z]([-a-z0-9]*[a-z0-9])")


@dataclass
class Account:
    """A service account, which the first calls may not see yet."""

    shown: Any
    lag: int

    def unseen(self) -> bool:
        """Return whether this call does not see it."""
        self.lag -= 1
        return self.lag >= 0


class Accounts:
    """`google.iam.admin.v1.IAM`."""

    api = "iam"

    def __init__(self, state: State) -> None:
        self._state = state
        policies = PolicyCalls(state, lambda name: self._find(name)[0], "iam")
        may = "iam.serviceAccounts"
        self.services: Mapping[str, Rpcs] = {
            "google.iam.admin.v1.IAM": {
                **rpcs(
                    (f"{may}.create", iam.CreateServiceAccountRequest, iam.ServiceAccount, self._create),
                    (f"{may}.delete", iam.DeleteServiceAccountRequest, empty_pb2.Empty, self._delete),
                    (f"{may}.get", iam.GetServiceAccountRequest, iam.ServiceAccount, self._get),
                ),
                **policies.rpcs(may),
            }
        }  # fmt: skip

    def _get(self, request: Any) -> Any:
        return self._find(request.name)[1]

    def _create(self, request: Any) -> Any:
        project, name = self._state.project(request.name), request.account_id
        assert project is not None, "`State.admit` has found it"
        if not _ID.fullmatch(name):
            raise invalid(f'The account ID "{name}" must match {_ID.pattern}.')
        email = f"{name}@{project.id}.iam.gserviceaccount.com"
        key = f"{project.id}/iam/serviceAccounts/{email}"
        if key in self._state.existing:
            raise taken(
                f"Service account {name} already exists within project projects/{project.id}."
            )
        shown = iam.ServiceAccount(
            name=f"projects/{project.id}/serviceAccounts/{email}",
            project_id=project.id,
            unique_id=str(10**20 + secrets.randbelow(10**20)),
            email=email,
            display_name=request.service_account.display_name,
            description=request.service_account.description,
        )
        self._state.existing[key] = Account(shown, self._state.lag)
        self._state.mark()
        return shown

    def _delete(self, request: Any) -> Any:
        key, found = self._find(request.name)
        del self._state.existing[key]
        self._state.policies.pop(key, None)
        bury(self._state, found.email, found.unique_id)
        self._state.mark()
        return empty_pb2.Empty()

    def _find(self, name: str) -> tuple[str, Any]:
        """Return the account with its full name, if this call sees it."""
        parts = parts_of(name, "projects", "serviceAccounts")
        key = f"{parts['projects']}/iam/serviceAccounts/{parts['serviceAccounts']}"
        found = self._state.existing.get(key)
        if found is None or found.unseen():
            raise not_found(f"Unknown service account: {name}")
        return key, found.shown
