"""Limits of Compute Engine, by the Cloud Quotas API."""

from __future__ import annotations

from collections.abc import Mapping

from google.cloud import cloudquotas_v1

from kinetic.provisioning.google.cloud import Cloud


def limit_of(cloud: Cloud, quota: str, dimensions: Mapping[str, str], location: str) -> int | None:
    """Return the limit of *quota*, a number of devices; None: the project has no such quota there.

    https://cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos

    Args:
        cloud: The project.
        quota: The id of the quota.
        dimensions: Of the limit; the most precise one of those that agree with them counts.
        location: Where the devices are: a region, or a zone.

    Raises:
        ProvisioningError: It cannot be read.
    """
    client = cloud.client("cloudquotas", cloudquotas_v1.CloudQuotasClient)
    path = f"projects/{cloud.project}/locations/global/services/compute.googleapis.com/quotaInfos/{quota}"
    found = cloud.ask(f"read the quota {quota}", client.get_quota_info, name=path)
    # Without a place in the dimensions it is in the locations; a limit of zones has several.
    places = {"global", location, dimensions["region"]}
    limits = [
        (len(each.dimensions), int(each.details.value))
        for each in (found.dimensions_infos if found else ())
        if {**each.dimensions}.items() <= {**dimensions, "zone": location}.items()
        and (not each.applicable_locations or places & {*each.applicable_locations})
    ]
    return max(limits)[1] if limits else None
