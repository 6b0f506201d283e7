"""Networks, through the REST API of Compute Engine: its client alone is larger than all others together."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession

from kinetic.provisioning.edge import Edge
from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.plan import Action, Actual, Resource

_BASE: Final = "https://compute.googleapis.com/compute/v1/"
_NAT: Final = {
    "name": "nat",
    "natIpAllocateOption": "AUTO_ONLY",
    "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
}
_GKE: Final = ("gke-", "k8s-")
"""The beginnings of the names of firewall rules that GKE makes."""


class Compute:
    """The REST API of Compute Engine for one project. Threads can share it."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._base = f"{(cloud.address('compute') or _BASE).rstrip('/')}/projects/{cloud.project}/"
        self._local = threading.local()

    def get(self, what: str, path: str, **query: str) -> dict[str, Any] | None:
        """Return what is at *path*; None if there is nothing."""
        return self._cloud.ask(what, lambda: self._send("GET", path, query))

    def items(self, what: str, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Iterate over a list, of whatever place if it is an aggregated one."""
        page: str | None = ""
        while page is not None:
            found = self.get(what, path, **query, **({"pageToken": page} if page else {})) or {}
            listed = found.get("items", [])
            if isinstance(listed, Mapping):
                for scope in listed.values():
                    for values in scope.values():
                        yield from values if isinstance(values, list) else ()
            else:
                yield from listed
            page = found.get("nextPageToken")

    def insert(self, what: str, path: str, body: Mapping[str, Any]) -> None:
        """Make *body* in the collection at *path*; return once it is there."""
        self._change(what, exceptions.Conflict, "POST", path, body)

    def patch(self, what: str, path: str, body: Mapping[str, Any]) -> None:
        """Change what is at *path*; return once it is changed."""
        self._change(what, (), "PATCH", path, body)

    def delete(self, what: str, path: str) -> None:
        """Delete what is at *path*; return once it is gone."""
        self._change(what, exceptions.NotFound, "DELETE", path)

    def _change(
        self, what: str, made: type[Exception] | tuple[()], method: str, path: str, body: Any = None
    ) -> None:
        """Return once a change, unless it raises *made*, has ended."""
        operation = self._cloud.change(what, lambda: self._send(method, path, {}, body), made=made)
        if not operation:
            return
        # Where it is: `…/projects/P/global/operations/N`, or with a region in place of `global`.
        path = operation["selfLink"].partition(f"/projects/{self._cloud.project}/")[2]
        latest: Mapping[str, Any] = operation

        def is_done() -> bool:
            nonlocal latest
            if latest["status"] != "DONE":
                latest = self.get(what, path) or {"status": "DONE"}
            return bool(latest["status"] == "DONE")

        self._cloud.wait(is_done)
        for error in latest.get("error", {}).get("errors", []):
            text = str(error.get("message", error)).rstrip(".")
            raise self._cloud.failed(f"Could not {what}: {text}.", f"{error.get('code')} {text}")

    def _send(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None
    ) -> dict[str, Any]:
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = AuthorizedSession(self._cloud.credentials)  # type: ignore[no-untyped-call]
        answer = session.request(
            method,
            f"{self._base}{path}",
            params=dict(query),
            json=body,
            timeout=self._cloud.timeout,
        )
        if answer.status_code >= 400:
            raise exceptions.from_http_response(answer)  # type: ignore[no-untyped-call]
        found: dict[str, Any] = answer.json()
        return found


def disks_of(cloud: Cloud, cluster: str) -> Iterator[tuple[str, str, int]]:
    """Iterate over the disks that pods of a cluster have left: name, zone and size in GB.

    https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-usage-metering
    """
    wanted = f"labels.goog-k8s-cluster-name={cluster}"
    for disk in Compute(cloud).items("list the disks", "aggregated/disks", filter=wanted):
        if not disk.get("users"):
            yield disk["name"], disk["zone"].rpartition("/")[2], int(disk.get("sizeGb", 0))


class NetworksEdge(Edge):
    """Makes a network, its subnetwork in a region and its router with Cloud NAT.

    A resource is named by its path: `global/networks/N`, `regions/R/subnetworks/N`, `regions/R/routers/N`.
    """

    service = "compute.googleapis.com"
    fixed = frozenset({"network", "range", "private_google_access"})

    def __init__(self, cloud: Cloud, cluster: str) -> None:
        super().__init__(cloud, cluster)
        self._compute = Compute(cloud)

    def permissions(self, action: Action, resource: Resource) -> tuple[str, ...]:
        """Return the permissions in the project that *action* needs."""
        kind = resource.name.split("/")[-2]
        verb = "update" if action == "change" else action
        more = {
            "subnetworks create": ("compute.networks.updatePolicy",),
            "routers create": ("compute.networks.updatePolicy",),
            "networks delete": ("compute.firewalls.list", "compute.firewalls.delete"),
        }
        return (f"compute.{kind}.{verb}", *more.get(f"{kind} {action}", ()))

    def read(self, resource: Resource) -> Actual | None:
        """Return the resource."""
        found = self._compute.get(f"read the {resource.id}", resource.name)
        if found is None:
            return None
        settings = {
            "range": found.get("ipCidrRange"),
            "private_google_access": found.get("privateIpGoogleAccess"),
            "network": f"global/networks/{found.get('network', '').rpartition('/')[2]}",
            # Addresses of one's own, say, are none of our business.
            "nat": bool(found.get("nats")),
        }
        return Actual(settings=settings, ours=found.get("description") == self._mark)

    def create(self, resource: Resource) -> None:
        """Make the resource."""
        collection, _, name = resource.name.rpartition("/")
        wanted, kind = resource.settings, collection.rpartition("/")[2]
        network = f"projects/{self._cloud.project}/{wanted.get('network')}"
        bodies: dict[str, dict[str, Any]] = {
            "networks": {"autoCreateSubnetworks": False},
            "subnetworks": {
                "network": network,
                "ipCidrRange": wanted.get("range"),
                "privateIpGoogleAccess": wanted.get("private_google_access"),
            },
            "routers": {"network": network, "nats": [_NAT]},
        }
        body = {"name": name, "description": self._mark, **bodies[kind]}
        self._compute.insert(f"create the {resource.id}", collection, body)

    def change(self, resource: Resource) -> None:
        """Give the router its NAT; nothing else can be changed."""
        what = f"change the {resource.id}"
        found = self._compute.get(what, resource.name) or {}
        if not found.get("nats"):
            self._compute.patch(what, resource.name, {"nats": [_NAT]})

    def delete(self, resource: Resource) -> None:
        """Delete the resource; before a network, the firewall rules that GKE has left there."""
        what = f"delete the {resource.id}"
        if "/networks/" in resource.name:
            own = f"/{resource.name}"
            rules = self._compute.items(what, "global/firewalls", filter=f'network eq ".*{own}"')
            for rule in rules:
                if rule["network"].endswith(own) and rule["name"].startswith(_GKE):
                    self._compute.delete(what, f"global/firewalls/{rule['name']}")
        self._compute.delete(what, resource.name)
