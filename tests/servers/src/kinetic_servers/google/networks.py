"""The resources of Compute, and what each may have in a request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kinetic_servers.google.places import NAME
from kinetic_servers.google.state import State
from kinetic_servers.http.messages import RefusedError
from kinetic_servers.http.shapes import Shape

BASE: Final = "https://www.googleapis.com/compute/v1/"
SHAPES: Final[dict[str, Shape]] = {
    "networks": {"name": str, "description": str, "autoCreateSubnetworks": bool},
    "subnetworks": {
        "name": str, "description": str, "network": str, "ipCidrRange": str, "privateIpGoogleAccess": bool,
    },
    "routers": {
        "name": str, "description": str, "network": str,
        "nats": [{
            "name": str, "natIpAllocateOption": str, "sourceSubnetworkIpRangesToNat": str, "natIps": [str],
        }],
    },
}  # fmt: skip
"""Collection → the fields that requests for its resources may have. The API knows more; none of them has labels."""
_NAT: Final = {
    "natIpAllocateOption": {"AUTO_ONLY", "MANUAL_ONLY"},
    "sourceSubnetworkIpRangesToNat": {
        "ALL_SUBNETWORKS_ALL_IP_RANGES", "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES", "LIST_OF_SUBNETWORKS",
    },
}  # fmt: skip


@dataclass
class Resource:
    """A resource of Compute."""

    project: str
    scope: str
    """`global`, `regions/NAME` or `zones/NAME`."""
    collection: str
    data: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def path(self) -> str:
        """`projects/P/global/networks/N`."""
        return f"projects/{self.project}/{self.scope}/{self.collection}/{self.name}"

    @property
    def link(self) -> str:
        return BASE + self.path

    @property
    def key(self) -> str:
        """The full name in `State.resources`."""
        place = self.scope.partition("/")[2]
        return "/".join(filter(None, (self.project, "compute", self.collection, place, self.name)))

    def is_busy(self, state: State) -> bool:
        """Return whether an operation changes it."""
        return state.running(self.key) is not None

    def shown(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        kind, _, where = self.scope.partition("/")
        place = {kind[:-1]: f"{BASE}projects/{self.project}/{self.scope}"} if where else {}
        return {
            "kind": f"compute#{self.collection[:-1]}", "selfLink": self.link, **self.data, **place
        }  # fmt: skip


def refused(status: int, reason: str, message: str) -> RefusedError:
    """Return an error of Compute."""
    return RefusedError(status, reason, message)


def no_resource(path: str) -> RefusedError:
    """Return the error for a resource that does not exist."""
    return refused(404, "notFound", f"The resource '{path}' was not found")


def _bad_value(name: str, value: Any, problem: str) -> RefusedError:
    message = f"Invalid value for field 'resource.{name}': '{value}'. {problem}"
    return refused(400, "invalid", message)


def users_of(state: State, found: Resource) -> Iterator[str]:
    """Iterate over the paths of what uses a network or subnetwork."""
    for key, each in sorted(state.existing.items()):
        project, kind, _, *place = key.split("/")
        if project != found.project:
            continue
        if kind == "compute" and each.data.get("network") == found.link:
            yield each.path
        region = found.scope.partition("/")[2]
        if kind != "container" or not place[0].startswith(region):
            continue
        if getattr(each, found.collection[:-1], None) == found.name:
            zone, node = each.locations[0], f"gke-{each.name}-{each.id[:8]}-node"
            yield f"projects/{project}/zones/{zone}/instances/{node}"


def firewalls_of_cluster(name: str, project: str, network: str) -> dict[str, Resource]:
    """Return the firewall rules that GKE makes for a cluster, by full name."""
    digest = hashlib.sha256(f"{project}/{name}".encode()).hexdigest()[:8]
    link = f"{BASE}projects/{project}/global/networks/{network}"
    found = [
        Resource(project, "global", "firewalls", {"name": f"gke-{name}-{digest}-{what}", "network": link})
        for what in ("all", "vms")
    ]  # fmt: skip
    return {each.key: each for each in found}


def check(state: State, made: Resource) -> None:
    """Refuse a resource with values that Compute refuses. The reference to a network becomes its link."""
    data = made.data
    if not NAME.fullmatch(str(data.get("name", ""))):
        pattern = "(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
        raise _bad_value("name", data.get("name", ""), f"Must be a match of regex '{pattern}'")
    if made.collection == "networks":
        return
    text = str(data.get("network", ""))
    match = re.fullmatch(
        r"(?:https?://[^/]+/compute/v1/)?projects/([^/]+)/global/networks/([^/]+)", text
    )
    if match is None:
        raise _bad_value("network", text, "The URL is malformed.")
    wanted = Resource(match[1], "global", "networks", {"name": match[2]})
    found = state.existing.get(wanted.key)
    if found is None:
        raise no_resource(wanted.path)
    check_ready(state, found)
    data["network"] = found.link
    for nat in data.get("nats", ()):
        for field, known in _NAT.items():
            if nat.get(field) not in known:
                raise _bad_value(f"nats[0].{field}", nat.get(field, ""), f"It must be of {known}.")


def check_ready(state: State, found: Resource) -> None:
    """Refuse to use a resource that an operation changes."""
    if found.is_busy(state):
        state.look(found.key)
        raise refused(400, "resourceNotReady", f"The resource '{found.path}' is not ready")
