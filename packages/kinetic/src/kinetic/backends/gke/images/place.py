"""A cluster by its name on GKE, and what is named after it: a repository, a bucket, an account of builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.regions import GKE_CONTEXT, cluster_region

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings

_MULTI_REGIONS: Final = ("us", "europe", "asia")
"""Locations of Artifact Registry that contain the regions whose names begin with theirs."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cluster by its name on GKE."""

    project: str
    region: str
    cluster: str

    @property
    def repository(self) -> str:
        """The repository for images in Artifact Registry."""
        group = self.region.partition("-")[0]
        where = group if group in _MULTI_REGIONS else self.region
        return f"{where}-docker.pkg.dev/{self.project}/kn-{self.cluster}"

    @property
    def builds_store(self) -> str:
        """The address of the builds bucket."""
        return f"gs://{self.project}-kn-{self.cluster}-builds"

    @property
    def builds_account(self) -> str:
        """The service account of builds."""
        return f"kn-{self.cluster}-builds@{self.project}.iam.gserviceaccount.com"


def place_of(settings: Settings, context: str | None, location: str | None) -> Place | None:
    """Return the cluster by its name on GKE; None if its project or region is not known.

    *context* is its name in the kubeconfig; *location* is what the GKE API names as its location.
    """
    found = GKE_CONTEXT.fullmatch(context or "")
    project = found["project"] if found else settings.project.value
    region = cluster_region(settings, context, location)
    if project is None or region is None:
        return None
    cluster = found["cluster"] if found else settings.cluster.value
    return Place(project=project, region=region, cluster=cluster)
