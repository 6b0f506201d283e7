"""Which projects and clusters there are: `kinetic init`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinetic.provisioning.google.clusters import FoundCluster


def find_projects() -> list[str]:
    """Return the ids of the projects that the user can see, in order."""
    from kinetic.provisioning.google.cloud import Cloud
    from kinetic.provisioning.google.projects import visible_projects
    from kinetic.settings.settings import environment

    return visible_projects(Cloud("-", environment()))


def find_clusters(project: str) -> list[FoundCluster]:
    """Return the clusters of *project*, those of Kinetic first; none if the GKE API is not enabled.

    Raises:
        ConfigurationError: *project* cannot be the id of a project.
    """
    from kinetic.provisioning.google.cloud import Cloud, check_project
    from kinetic.provisioning.google.clusters import ClustersEdge
    from kinetic.provisioning.google.services import ServicesEdge
    from kinetic.settings.settings import environment

    cloud = Cloud(check_project(project), environment())
    clusters = ClustersEdge(cloud)
    found = clusters.found() if ServicesEdge(cloud).read_enabled(clusters.service) else []
    return sorted(found, key=lambda each: (not each.ours, each.name))
