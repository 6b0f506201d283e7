"""Repositories of Artifact Registry."""

from __future__ import annotations

from typing import ClassVar

from google.api_core import exceptions
from google.cloud import artifactregistry_v1

from kinetic.provisioning.edge import MARK, Edge, Needs
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.plan import Actual, Resource


class RepositoriesEdge(Edge):
    """Makes repositories for images. A resource is named `LOCATION/REPOSITORY`."""

    service = "artifactregistry.googleapis.com"
    needs: ClassVar[Needs] = {
        "create": ("artifactregistry.repositories.create",),
        "change": ("artifactregistry.repositories.update",),
        "delete": ("artifactregistry.repositories.delete",),
    }

    def read(self, resource: Resource) -> Actual | None:
        """Return the repository, with the days after which images are deleted."""
        found = self._get(resource)
        if found is None:
            return None
        old = found.cleanup_policies.get("old")
        age = old.condition.older_than if old else None
        days = age.days if age else None
        return Actual(
            settings={"delete_after_days": days}, ours=found.labels.get(MARK) == self._name
        )

    def create(self, resource: Resource) -> None:
        """Make the repository."""
        location, _, name = resource.name.partition("/")
        what = f"create the {resource.id}"
        operation = self._cloud.change(
            what,
            self.client.create_repository,
            made=exceptions.AlreadyExists,
            parent=f"projects/{self._cloud.project}/locations/{location}",
            repository_id=name,
            repository=self._repository(resource),
        )
        self._cloud.finish(what, operation)

    def change(self, resource: Resource) -> None:
        """Change when images are deleted."""
        repository = self._repository(resource)
        repository.name = path_of(self._cloud, resource.name)
        there = self._get(resource)
        others = dict(there.cleanup_policies) if there else {}
        repository.cleanup_policies = {**others, **repository.cleanup_policies}
        self._cloud.change(
            f"change the {resource.id}",
            self.client.update_repository,
            repository=repository,
            update_mask={"paths": ["cleanup_policies"]},
        )

    def delete(self, resource: Resource) -> None:
        """Delete the repository with its images."""
        what, name = f"delete the {resource.id}", path_of(self._cloud, resource.name)
        self._cloud.finish(what, self._cloud.ask(what, self.client.delete_repository, name=name))

    def _get(self, resource: Resource) -> artifactregistry_v1.Repository | None:
        name = path_of(self._cloud, resource.name)
        return self._cloud.ask(f"read the {resource.id}", self.client.get_repository, name=name)

    def _repository(self, resource: Resource) -> artifactregistry_v1.Repository:
        old = artifactregistry_v1.CleanupPolicy(
            id="old",
            action="DELETE",
            condition={"older_than": f"{resource.settings['delete_after_days'] * 86400}s"},
        )
        return artifactregistry_v1.Repository(
            format_="DOCKER",
            description="Images of Kinetic.",
            labels={MARK: self._name},
            cleanup_policies={"old": old},
        )

    @property
    def client(self) -> artifactregistry_v1.ArtifactRegistryClient:
        """Google's client."""
        return repositories_client(self._cloud)


def repositories_client(cloud: Cloud) -> artifactregistry_v1.ArtifactRegistryClient:
    """Return the client of Artifact Registry."""
    return cloud.client("artifactregistry", artifactregistry_v1.ArtifactRegistryClient)


def path_of(cloud: Cloud, name: str) -> str:
    """Return the full name of the repository `LOCATION/REPOSITORY`."""
    location, _, repository = name.partition("/")
    return f"projects/{cloud.project}/locations/{location}/repositories/{repository}"
