"""The resources of Compute, and what each may have in a request."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kinetic_servers.google.places import NAME, REGIONS
from kinetic_servers.google.state import State
from kinetic_servers.http.messages import RefusedError
from kinetic_servers.http.shapes import Shape

BASE: Final = "https://www.googleapis.com/compute/v1/"

_LOG: Final = {
    "enable": bool, "filter": str, "metadata": str, "aggregationInterval": str, "flowSampling": float,
    "metadataFields": [str], "filterExpr": str, "optionalFields": [str],
}  # fmt: skip
_PORTS: Final = [{"IPProtocol": str, "ports": [str]}]
OUTPUT: Final = {
    "kind": str, "id": str, "creationTimestamp": str, "selfLink": str, "selfLinkWithId": str, "region": str,
    "zone": str, "fingerprint": str,
}  # fmt: skip
"""What the service sets, and ignores in requests."""
SHAPES: Final[dict[str, Shape]] = {
    "networks": {
        **OUTPUT, "name": str, "description": str, "autoCreateSubnetworks": bool, "mtu": int, "enableUlaInternalIpv6": bool, "internalIpv6Range": str,
        "routingConfig": {"routingMode": str, "bgpBestPathSelectionMode": str}, "subnetworks": [str],
        "networkFirewallPolicyEnforcementOrder": str, "gatewayIPv4": str, "networkProfile": str,
    },
    "subnetworks": {
        **OUTPUT, "name": str, "description": str, "network": str, "ipCidrRange": str, "privateIpGoogleAccess": bool, "purpose": str, "role": str,
        "secondaryIpRanges": [{"rangeName": str, "ipCidrRange": str, "reservedInternalRange": str}],
        "logConfig": _LOG, "stackType": str, "ipv6AccessType": str, "enableFlowLogs": bool, "gatewayAddress": str,
        "privateIpv6GoogleAccess": str, "allowSubnetCidrRoutesOverlap": bool,
    },
    "routers": {
        **OUTPUT, "name": str, "description": str, "network": str, "encryptedInterconnectRouter": bool,
        "bgp": {"asn": int, "advertiseMode": str, "keepaliveInterval": int}, "interfaces": [{"*": str}],
        "nats": [{
            "name": str, "type": str, "natIpAllocateOption": str, "sourceSubnetworkIpRangesToNat": str,
            "subnetworks": [{"name": str, "sourceIpRangesToNat": [str], "secondaryIpRangeNames": [str]}],
            "natIps": [str], "drainNatIps": [str], "minPortsPerVm": int, "maxPortsPerVm": int,
            "enableDynamicPortAllocation": bool, "enableEndpointIndependentMapping": bool,
            "udpIdleTimeoutSec": int, "icmpIdleTimeoutSec": int, "tcpEstablishedIdleTimeoutSec": int,
            "tcpTransitoryIdleTimeoutSec": int, "tcpTimeWaitTimeoutSec": int, "logConfig": _LOG,
            "autoNetworkTier": str, "endpointTypes": [str],
        }],
    },
    "firewalls": {
        **OUTPUT, "name": str, "description": str, "network": str, "priority": int, "direction": str, "disabled": bool, "logConfig": _LOG,
        "sourceRanges": [str], "destinationRanges": [str], "sourceTags": [str], "targetTags": [str],
        "sourceServiceAccounts": [str], "targetServiceAccounts": [str], "allowed": _PORTS, "denied": _PORTS,
    },
}  # fmt: skip
"""Collection → the shape of its resources. None of them has labels."""

_ALLOCATION: Final = {"AUTO_ONLY", "MANUAL_ONLY"}
_RANGES: Final = {
    "ALL_SUBNETWORKS_ALL_IP_RANGES",
    "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES",
    "LIST_OF_SUBNETWORKS",
}


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

    def shown(self, state: State) -> dict[str, Any]:
        """Return it as the API shows it."""
        digest = hashlib.sha256(self.path.encode()).hexdigest()
        place: dict[str, Any] = {}
        kind, _, where = self.scope.partition("/")
        if where:
            place[kind.rstrip("s")] = f"{BASE}projects/{self.project}/{self.scope}"
        if self.collection == "networks" and (found := list(subnetworks_of(state, self))):
            place["subnetworks"] = [each.link for each in found]
        return {
            "kind": f"compute#{self.collection.rstrip('s')}",
            "id": str(int(digest[:15], 16)),
            "creationTimestamp": "2026-11-27T01:00:00.000-08:00",
            "selfLink": self.link,
            **self.data,
            **place,
        }


def refused(status: int, reason: str, message: str) -> RefusedError:
    """Return an error of Compute."""
    return RefusedError(status, reason, message)


def no_resource(path: str) -> RefusedError:
    """Return the error for a resource that does not exist."""
    return refused(404, "notFound", f"The resource '{path}' was not found")


def bad_value(name: str, value: Any, problem: str) -> RefusedError:
    """Return the error for the value of a field."""
    message = f"Invalid value for field 'resource.{name}': '{value}'. {problem}"
    return refused(400, "invalid", message)


def all_of(state: State, collection: str) -> Iterator[Resource]:
    """Iterate over the resources of all projects."""
    for key, found in sorted(state.existing.items()):
        if f"/compute/{collection}/" in key:
            yield found


def subnetworks_of(state: State, network: Resource) -> Iterator[Resource]:
    """Iterate over the subnetworks of a network."""
    return (each for each in all_of(state, "subnetworks") if each.data["network"] == network.link)


def users_of(state: State, found: Resource) -> Iterator[str]:
    """Iterate over the paths of what uses a network or subnetwork."""
    if found.collection == "networks":
        for collection in ("firewalls", "routers", "subnetworks"):
            for each in all_of(state, collection):
                automatic = collection == "subnetworks" and found.data.get("autoCreateSubnetworks")
                if each.data["network"] == found.link and not automatic:
                    yield each.path
    field = found.collection.rstrip("s")
    for key, cluster in sorted(state.existing.items()):
        project, kind, _, *place = key.split("/")
        if kind != "container" or project != found.project:
            continue
        region = found.scope.partition("/")[2]
        if getattr(cluster, field, None) == found.name and place[0].startswith(region):
            zone = cluster.locations[0]
            yield f"projects/{project}/zones/{zone}/instances/gke-{cluster.name}-{cluster.id[:8]}-node"
    if found.collection == "subnetworks":
        for each in all_of(state, "routers"):
            for nat in each.data.get("nats", ()):
                if any(part["name"] == found.link for part in nat.get("subnetworks", ())):
                    yield each.path


def firewalls_of_cluster(name: str, project: str, network: str) -> dict[str, Resource]:
    """Return the firewall rules that GKE makes for a cluster, by full name."""
    digest = hashlib.sha256(f"{project}/{name}".encode()).hexdigest()[:8]
    found = {}
    for what, protocol in (("all", "esp"), ("vms", "icmp")):
        data = {
            "name": f"gke-{name}-{digest}-{what}",
            "network": f"{BASE}projects/{project}/global/networks/{network}",
            "priority": 1000,
            "direction": "INGRESS",
            "sourceRanges": ["10.0.0.0/8"],
            "targetTags": [f"gke-{name}-{digest}-node"],
            "allowed": [{"IPProtocol": protocol}],
        }
        made = Resource(project, "global", "firewalls", data)
        found[made.key] = made
    return found


def automatic_subnetworks(network: Resource) -> Iterator[Resource]:
    """Iterate over the subnetworks of a network that has one in each region."""
    for number, region in enumerate(REGIONS):
        data = {
            "name": network.name,
            "network": network.link,
            "ipCidrRange": f"10.{128 + 2 * number}.0.0/20",
            "privateIpGoogleAccess": False,
        }
        yield Resource(network.project, f"regions/{region}", "subnetworks", data)


def check(state: State, made: Resource) -> None:
    """Refuse a resource with values that Compute refuses. References in it become links."""
    data = made.data
    if not NAME.fullmatch(str(data.get("name", ""))):
        pattern = "(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
        raise bad_value("name", data.get("name", ""), f"Must be a match of regex '{pattern}'")
    if made.collection == "networks":
        if "autoCreateSubnetworks" not in data:
            raise refused(
                400, "invalid", "Invalid value for field 'resource.IPv4Range': ''. Legacy networks "
                "are no longer supported. Set autoCreateSubnetworks to choose the kind of the network."
            )  # fmt: skip
        return
    if made.collection == "firewalls":
        data.setdefault("network", "global/networks/default")
        if bool(data.get("allowed")) == bool(data.get("denied")):
            raise refused(400, "invalid", "Exactly one of allowed or denied must be specified.")
        data = made.data = {"priority": 1000, "direction": "INGRESS", "disabled": False, **data}
    network = referenced(state, made, "network", "networks", "global")
    if made.collection == "subnetworks":
        data.setdefault("privateIpGoogleAccess", False)
        _check_ranges(state, made, network)
    for nat in data.get("nats", ()) if made.collection == "routers" else ():
        if not NAME.fullmatch(nat.get("name", "")):
            raise bad_value("nats[0].name", nat.get("name", ""), "It is not a name.")
        for field, known in (
            ("natIpAllocateOption", _ALLOCATION),
            ("sourceSubnetworkIpRangesToNat", _RANGES),
        ):
            if nat.get(field) not in known:
                raise bad_value(f"nats[0].{field}", nat.get(field, ""), f"It must be of {known}.")
        for part in nat.get("subnetworks", ()):
            used = Resource(made.project, made.scope, "routers", part)
            referenced(state, used, "name", "subnetworks", made.scope)


def referenced(state: State, made: Resource, field: str, collection: str, scope: str) -> Resource:
    """Return the resource that a field names, which becomes its link."""
    text = str(made.data.get(field, ""))
    rest = re.sub(r"^https?://[^/]+/compute/[^/]+/", "", text)
    if not rest.startswith("projects/"):
        rest = f"projects/{made.project}/{rest}"
    match = re.fullmatch(rf"projects/([^/]+)/{scope}/{collection}/([^/]+)", rest)
    if match is None:
        example = f"{scope}/{collection}/NAME"
        raise bad_value(field, text, f"The URL is malformed; it may be '{example}'.")
    wanted = Resource(match[1], scope, collection, {"name": match[2]})
    found = state.existing.get(wanted.key)
    if found is None:
        raise no_resource(wanted.path)
    check_ready(state, found)
    made.data[field] = found.link
    return found  # type: ignore[no-any-return]


def check_ready(state: State, found: Resource) -> None:
    """Refuse to use a resource that an operation changes."""
    if found.is_busy(state):
        state.look(found.key)
        raise refused(400, "resourceNotReady", f"The resource '{found.path}' is not ready")


def _check_ranges(state: State, made: Resource, network: Resource) -> None:
    fields = [("ipCidrRange", made.data.get("ipCidrRange", ""))]
    for each in made.data.get("secondaryIpRanges", ()):
        fields.append(("secondaryIpRanges[0].ipCidrRange", each.get("ipCidrRange", "")))
    taken = [
        (each, ipaddress.ip_network(text))
        for each in subnetworks_of(state, network)
        for text in (
            each.data["ipCidrRange"],
            *(part["ipCidrRange"] for part in each.data.get("secondaryIpRanges", ())),
        )
    ]
    for field, text in fields:
        try:
            own = ipaddress.ip_network(text)
        except ValueError:
            raise bad_value(field, text, "It is not a range of addresses.") from None
        for each, used in taken:
            if own.overlaps(used):
                region = each.scope.rpartition("/")[2]
                raise refused(
                    400, "invalid", f"Invalid IPCidrRange: {text} conflicts with existing subnetwork "
                    f"'{each.name}' in region '{region}'."
                )  # fmt: skip
