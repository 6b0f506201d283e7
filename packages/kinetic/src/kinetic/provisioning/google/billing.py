"""Cloud Billing: Google's catalogue of prices, and whether a project is billed to somebody."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from google.cloud import billing_v1

from kinetic.provisioning.google.cloud import Cloud

_COMPUTE: Final = "services/6F81-5844-456A"
"""Compute Engine: https://cloud.google.com/skus. TPUs from v5e on are there, too."""
_PAGE: Final = 5000
"""https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list"""


def read_catalogue(cloud: Cloud, names: Collection[str]) -> dict[str, dict[str, float]]:
    """Return US dollars per hour by region of the SKUs that are called *names*, without " running in PLACE".

    What two SKUs of a name say differently of a region is left out.

    Raises:
        ProvisioningError: The catalogue cannot be read.
    """
    client = cloud.client("cloudbilling", billing_v1.CloudCatalogClient)
    asked = {"parent": _COMPUTE, "currency_code": "USD", "page_size": _PAGE}
    listed = cloud.ask(
        "read Google's prices",
        lambda: list(client.list_skus(request=asked, retry=None, timeout=cloud.timeout)),
    )
    found: dict[str, dict[str, set[float]]] = {}
    for sku in listed or ():
        name, _, place = sku.description.partition(" running in ")
        usage = "Preemptible" if "Spot Preemptible" in name else "OnDemand"
        if name not in names or not place or sku.category.usage_type != usage:
            continue
        price = sku.pricing_info[-1].pricing_expression if sku.pricing_info else None
        # One price for any amount, of an hour or of a GiB for an hour.
        if price is None or len(price.tiered_rates) != 1 or price.usage_unit not in ("h", "GiBy.h"):
            continue
        unit = price.tiered_rates[0].unit_price
        for region in sku.service_regions if unit.currency_code == "USD" else ():
            prices = found.setdefault(name, {}).setdefault(region, set())
            prices.add(unit.units + unit.nanos / 1e9)
    return {
        name: {region: prices.pop() for region, prices in regions.items() if len(prices) == 1}
        for name, regions in found.items()
    }


def is_billed(cloud: Cloud) -> bool | None:
    """Return whether the project has a billing account that pays; None if the project does not exist.

    Raises:
        ProvisioningError: It cannot be read.
    """
    client = cloud.client("cloudbilling.projects", billing_v1.CloudBillingClient)
    found = cloud.ask(
        "see whether the project is billed",
        client.get_project_billing_info,
        name=f"projects/{cloud.project}",
    )
    return None if found is None else found.billing_enabled
