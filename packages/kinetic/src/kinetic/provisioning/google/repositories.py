"""Repositories of Artifact Registry."""

from __future__ import annotations

from typing import Any, ClassVar

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

    def __init__(self, cloud: Cloud, cluster: str) -> None:
        self._cloud = cloud
        self._cluster = cluster

    def read(self, resource: Resource) -> Actual | None:
        """Return the repository, with the days after which images are deleted."""
        found = self._get(resource)
        if found is None:
            return None
        old = found.cleanup_policies.get("old")
        age = old.condition.older_than if old else None
        days = age.days if age else None
        return Actual(
            settings={"delete_after_days": days}, ours=found.labels.get(MARK) == self._cluster
        )

    def create(self, resource: Resource) -> None:
        """Make the repository."""
        location, _, name = resource.name.partition("/")
        asked = artifactregistry_v1.CreateRepositoryRequest(
            parent=f"projects/{self._cloud.project}/locations/{location}",
            repository_id=name,
            repository=self._repository(resource),
        )

        def create() -> Any:
            try:
                return self.client.create_repository(
                    request=asked, retry=None, timeout=self._cloud.timeout
                )
            except exceptions.AlreadyExists:
                return None

        operation = self._cloud.change(f"create the {resource.id}", create)
        self._cloud.finish(f"create the {resource.id}", operation)

    def change(self, resource: Resource) -> None:
        """Change when images are deleted."""
        repository = self._repository(resource)
        repository.name = path_of(self._cloud, resource.name)
        there = self._get(resource)
        others = dict(there.cleanup_policies) if there else {}
        repository.cleanup_policies = {**others, **repository.cleanup_policies}
        asked = artifactregistry_v1.UpdateRepositoryRequest(
            repository=repository, update_mask={"paths": ["cleanup_policies"]}
        )
        self._cloud.change(
            f"change the {resource.id}",
            lambda: self.client.update_repository(
                request=asked, retry=None, timeout=self._cloud.timeout
            ),
        )

    def delete(self, resource: Resource) -> None:
        """Delete the repository with its images."""
        asked = artifactregistry_v1.DeleteRepositoryRequest(
            name=path_of(self._cloud, resource.name)
        )
        operation = self._cloud.ask(
            f"delete the {resource.id}",
            lambda: self.client.delete_repository(
                request=asked, retry=None, timeout=self._cloud.timeout
            ),
        )
        self._cloud.finish(f"delete the {resource.id}", operation)

    def _get(self, resource: Resource) -> Any:
        asked = artifactregistry_v1.GetRepositoryRequest(name=path_of(self._cloud, resource.name))
        return self._cloud.ask(
            f"read the {resource.id}",
            lambda: self.client.get_repository(
                request=asked, retry=None, timeout=self._cloud.timeout
            ),
        )

    def _repository(self, resource: Resource) -> artifactregistry_v1.Repository:
        old = artifactregistry_v1.CleanupPolicy(
            id="old",
            action="DELETE",
            condition={"older_than": f"{resource.settings['delete_after_days'] * 86400}s"},
        )
        return artifactregistry_v1.Repository(
            format_="DOCKER",
            description="Images of Kinetic.",
            labels={MARK: self._cluster},
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
