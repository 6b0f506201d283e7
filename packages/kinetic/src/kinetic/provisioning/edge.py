"""`Edge`: reads, makes, changes and deletes the resources of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from kinetic.provisioning.plan import Action, Actual, Resource

if TYPE_CHECKING:
    from kinetic.provisioning.google.cloud import Cloud

MARK: Final = "kinetic-cluster"
"""The label of what Kinetic made; its value is the name of the cluster."""
Needs = Mapping[str, tuple[str, ...]]
"""By action, the permissions in the project."""


class Edge:
    """The only place that knows how the resources of one kind are read and changed.

    Everything may be called again: what is there already, or gone already, is no error. A call returns once its
    effect is there. All of them raise `ProvisioningError`.
    """

    fixed: frozenset[str] = frozenset()
    """The settings that cannot be changed."""
    service: ClassVar[str] = ""
    needs: ClassVar[Needs] = {}

    def __init__(self, cloud: Cloud, cluster: str = "") -> None:
        """Take the project, and the name of the cluster by which what is made is marked."""
        self._cloud = cloud
        self._name = cluster
        self._mark = f"Made by Kinetic for the cluster {cluster}."
        """The description by which Kinetic knows again what it made and cannot label."""

    def service_of(self, resource: Resource) -> str:  # noqa: ARG002
        """Return the API without which nothing of the kind exists; empty: that is always enabled."""
        return self.service

    def permissions(self, action: Action, resource: Resource) -> tuple[str, ...]:  # noqa: ARG002
        """Return the permissions in the project that *action* needs."""
        if action == "replace":
            return self.needs.get("delete", ()) + self.needs.get("create", ())
        return self.needs.get(action, ())

    def read(self, resource: Resource) -> Actual | None:
        """Return the resource as it is; None: it does not exist."""
        raise NotImplementedError

    def create(self, resource: Resource) -> None:
        """Make the resource."""
        raise NotImplementedError

    def change(self, resource: Resource) -> None:
        """Give the resource the settings that are wanted; by default there is nothing to change."""

    def wait(self, resource: Resource) -> None:
        """Return once nothing is being changed; by default all changes are made at once."""

    def delete(self, resource: Resource) -> None:
        """Delete the resource, with what it contains; by default it stays."""


Edges = Mapping[str, Edge]
"""By the kind of resources."""
