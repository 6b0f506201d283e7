"""Cloud Billing: who pays for a project, and the catalogue of prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.cloud import billing_v1 as billing

from kinetic_servers.google.apis import Rpcs, rpcs
from kinetic_servers.google.state import ApiError, State, invalid

_COMPUTE: Final = "services/6F81-5844-456A"
_MOST: Final = 5000
_PAGE: Final = 2
"""The most SKUs of a page, so that there are several."""


class Billing:
    """`google.cloud.billing.v1`: `CloudBilling` and `CloudCatalog`.

    The catalogue belongs to no project. Here it can be read if any project has the API; Google looks at the project
    of the credentials.
    """

    api = "cloudbilling"

    def __init__(self, state: State) -> None:
        self._state = state
        package, info, skus = (
            "google.cloud.billing.v1",
            billing.ProjectBillingInfo,
            billing.ListSkusResponse,
        )
        may = "resourcemanager.projects.get"
        self.services: Mapping[str, Rpcs] = {
            f"{package}.CloudBilling": rpcs((may, billing.GetProjectBillingInfoRequest, info, self._get)),
            f"{package}.CloudCatalog": rpcs((None, billing.ListSkusRequest, skus, self._list)),
        }  # fmt: skip

    def _get(self, request: Any) -> Any:
        found = self._state.project(request.name)
        assert found is not None, "`State.admit` has found it"
        return billing.ProjectBillingInfo(project_id=found.id, billing_enabled=found.billing)

    def _list(self, request: Any) -> Any:
        if not any("cloudbilling" in each.apis for each in self._state.projects.values()):
            raise ApiError(
                grpc.StatusCode.PERMISSION_DENIED,
                "Cloud Billing API has not been used in project 0 before or it is disabled.",
                reason="SERVICE_DISABLED",
            )
        if request.parent != _COMPUTE or request.currency_code not in ("", "USD"):
            raise invalid(
                f"Invalid parent {request.parent!r} or currency {request.currency_code!r}."
            )
        if not 0 <= request.page_size <= _MOST:
            raise invalid(f"The page size is at most {_MOST}; got {request.page_size}.")
        start = int(request.page_token or 0)
        more = start + _PAGE < len(self._state.skus)
        return billing.ListSkusResponse(
            skus=self._state.skus[start : start + _PAGE],
            next_page_token=str(start + _PAGE) if more else "",
        )


def sku(description: str, dollars: float, *regions: str, usage: str = "OnDemand") -> Any:
    """Return a SKU of Compute Engine."""
    price = {"currency_code": "USD", "units": int(dollars), "nanos": round(dollars % 1 * 1e9)}
    expression = {"usage_unit": "h", "tiered_rates": [{"unit_price": price}]}
    return billing.Sku(
        name=f"{_COMPUTE}/skus/{abs(hash(description)):X}",
        description=description,
        category={"resource_family": "Compute", "usage_type": usage},
        service_regions=regions,
        pricing_info=[{"pricing_expression": expression}],
    )
