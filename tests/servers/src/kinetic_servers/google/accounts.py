"""Identity and Access Management: service accounts, which are deleted softly."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.cloud import iam_admin_v1 as iam
from google.protobuf import empty_pb2

from kinetic_servers.google.policies import PolicyCalls, bury
from kinetic_servers.google.state import State, invalid, not_found, taken

_ID: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])")
_LONGEST: Final = {"display_name": 100, "description": 256}


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
        policies = PolicyCalls(state, self._key, "iam")
        self.methods: Mapping[str, Callable[[Any], Any]] = {
            "CreateServiceAccount": self._create,
            "DeleteServiceAccount": self._delete,
            "GetIamPolicy": policies.get,
            "GetServiceAccount": lambda request: self._find(request.name).shown,
            "PatchServiceAccount": self._patch,
            "SetIamPolicy": policies.set,
            "TestIamPermissions": policies.test,
        }

    def _create(self, request: Any) -> Any:
        project, name = self._state.project(request.name), request.account_id
        assert project is not None, "`State.admit` has found it"
        if not 6 <= len(name) <= 30:
            raise invalid(f'The account ID "{name}" does not have a length between 6 and 30.')
        if not _ID.fullmatch(name):
            raise invalid(
                f'The account ID "{name}" must match the regular expression {_ID.pattern}.'
            )
        email = f"{name}@{project.id}.iam.gserviceaccount.com"
        place = f"projects/{project.id}/serviceAccounts/{email}"
        key = f"{project.id}/iam/serviceAccounts/{email}"
        if key in self._state.existing:
            raise taken(
                f"Service account {name} already exists within project projects/{project.id}."
            )
        given = request.service_account
        shown = iam.ServiceAccount(
            name=place,
            project_id=project.id,
            unique_id=str(10**20 + secrets.randbelow(10**20)),
            email=email,
            display_name=given.display_name,
            description=given.description,
            oauth2_client_id=str(10**20 + secrets.randbelow(10**20)),
            etag=b"MDEwMjE5MjA=",
        )
        _check_texts(shown)
        self._state.existing[key] = Account(shown, self._state.lag)
        self._state.mark()
        return shown

    def _patch(self, request: Any) -> Any:
        found = self._find(request.service_account.name).shown
        paths = list(request.update_mask.paths)
        if not paths or not set(paths) <= _LONGEST.keys():
            raise invalid(f"The update mask may have {' and '.join(_LONGEST)}; got {paths}.")
        changed = iam.ServiceAccount(found)
        for path in paths:
            setattr(changed, path, getattr(request.service_account, path))
        _check_texts(changed)
        if changed != found:
            self._find(found.name).shown = changed
            self._state.mark()
        return changed

    def _delete(self, request: Any) -> Any:
        found, key = self._find(request.name).shown, self._key(request.name)
        del self._state.existing[key]
        self._state.policies.pop(key, None)
        bury(self._state, found.email, found.unique_id)
        self._state.mark()
        return empty_pb2.Empty()

    def _find(self, name: str) -> Account:
        """Return the account, if this call sees it."""
        parts = name.split("/")
        if len(parts) != 4 or parts[::2] != ["projects", "serviceAccounts"]:
            raise invalid(f"Invalid form of the service account's name: {name}")
        project = parts[3].partition("@")[2].removesuffix(".iam.gserviceaccount.com")
        key = f"{project}/iam/serviceAccounts/{parts[3]}"
        for full, found in self._state.existing.items():
            same = full == key or ("/iam/" in full and found.shown.unique_id == parts[3])
            if same and not found.unseen():
                return found  # type: ignore[no-any-return]
        raise not_found(f"Unknown service account: {name}")

    def _key(self, resource: str) -> str:
        found = self._find(resource).shown
        return f"{found.project_id}/iam/serviceAccounts/{found.email}"


def _check_texts(account: Any) -> None:
    for name, longest in _LONGEST.items():
        if len(getattr(account, name).encode()) > longest:
            raise invalid(f"{name} must have at most {longest} bytes.")
