"""Compute's REST API, version 1: <https://docs.cloud.google.com/compute/docs/reference/rest/v1>."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from kinetic_servers.google.compute.filters import matcher
from kinetic_servers.google.compute.resources import (
    BASE,
    OUTPUT,
    SHAPES,
    Resource,
    automatic_subnetworks,
    check,
    check_ready,
    no_resource,
    refused,
    subnetworks_of,
    users_of,
)
from kinetic_servers.google.gate import Gate, HttpApiError, HttpFault
from kinetic_servers.google.permissions import COMPUTE
from kinetic_servers.google.places import ACCELERATORS, MACHINES, REGIONS, ZONES
from kinetic_servers.google.state import Operation, State, new_name, permission_denied
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer
from kinetic_servers.http.shapes import check_shape

_PATH: Final = re.compile(
    r"/compute/v1/projects/(?P<project>[^/]+)/"
    r"(?:(?P<scope>global|aggregated|regions/[^/]+|zones/[^/]+)/)?"
    r"(?P<collection>[A-Za-z]+)(?:/(?P<name>[^/]+)(?P<wait>/wait)?)?"
)
_HOMES: Final = {
    "disks": "zones", "firewalls": "global", "networks": "global", "routers": "regions", "subnetworks": "regions",
}  # fmt: skip
"""Collection → where its resources are."""
_METHODS: Final = {"GET": "get", "POST": "insert", "DELETE": "delete", "PATCH": "patch"}
_MOST: Final = 500
_PARAMETERS: Final = {
    "alt", "filter", "maxResults", "orderBy", "pageToken", "prettyPrint", "requestId", "returnPartialSuccess",
}  # fmt: skip
"""The parameters that a call may have. The order is always that of names, and no request is repeated."""


class ComputeService(Gate):
    """Performs calls on the resources in a state."""

    def __init__(
        self,
        state: State,
        faults: list[HttpFault],
        accepts: Callable[[str], bool],
    ) -> None:
        super().__init__(state, faults)
        self._accepts = accepts
        """Whether a token is valid."""

    def route(self, call: Call) -> None:
        """Find the operation, such as `networks.insert`."""
        match = _PATH.fullmatch(call.path)
        if match is None:
            call.operation = "unknown"
            return
        scope, name, verb = match["scope"], match["name"], _METHODS.get(call.method, "unknown")
        if verb == "get" and not name:
            verb = "aggregatedList" if scope == "aggregated" else "list"
        if match["wait"]:
            verb = "wait" if call.method == "POST" else "unknown"
        call.operation, call.name = f"{match['collection']}.{verb}", name or ""

    def describe(self, call: Call) -> str:
        return f"{call.method} {call.path.removeprefix('/compute/v1/')}"

    async def act(self, call: Call) -> Answer:
        body = await call.read()
        match = _PATH.fullmatch(call.path)
        if match is None or call.operation not in COMPUTE:
            raise refused(404, "notFound", "The requested URL was not found on this server.")
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not self._accepts(token):
            raise refused(401, "required", "Login Required.")
        for name in call.query.keys() - _PARAMETERS:
            message = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
            raise refused(400, "badRequest", message)
        project = self._admit(call, match["project"], body)
        scope, collection = match["scope"] or "", match["collection"]
        kind, _, place = scope.partition("/")
        if (kind == "regions" and place not in REGIONS) or (kind == "zones" and place not in ZONES):
            raise refused(
                400,
                "invalid",
                f"Invalid value for field '{kind[:-1]}': '{place}'. Unknown {kind[:-1]}.",
            )
        verb = call.operation.partition(".")[2]
        if collection == "operations":
            return json_answer(self._polled(project, scope, match["name"] or ""))
        if verb == "aggregatedList":
            return json_answer(self._aggregated(call, project, collection))
        if collection in ("zones", "regions") and not scope:
            return self._places(call, project, collection, match["name"])
        if kind != _HOMES.get(collection):
            raise refused(404, "notFound", "The requested URL was not found on this server.")
        if verb == "insert":
            return json_answer(self._insert(Resource(project, scope, collection, _json(body))))
        if verb == "list":
            found = [
                each.shown(self._state)
                for each in self._resources(project, collection)
                if each.scope == scope
            ]
            return json_answer(_page(call, f"{collection.rstrip('s')}List", found))
        wanted = Resource(project, scope, collection, {"name": match["name"]})
        resource = self._state.existing.get(wanted.key)
        if resource is None:
            raise no_resource(wanted.path)
        if verb == "get":
            answer = json_answer(resource.shown(self._state))
            self._state.look(resource.key)
            return answer
        check_ready(self._state, resource)
        if verb == "delete":
            return json_answer(self._delete(resource))
        return json_answer(self._patch(resource, _json(body)))

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        detail = {"message": error.message, "domain": error.domain, "reason": error.code}
        data: dict[str, Any] = {
            "code": error.status, "message": error.message, "errors": [detail]
        }  # fmt: skip
        if isinstance(error, HttpApiError):
            given = error.error
            data["status"] = given.code.name
            if given.reason == "SERVICE_DISABLED":
                detail.update(domain="usageLimits", reason="accessNotConfigured")
            if given.reason:
                info = {
                    "reason": given.reason,
                    "domain": given.domain,
                    "metadata": {**given.metadata},
                }
                data["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}]
        return json_answer({"error": data}, status=error.status, headers=error.headers)

    def injected(self, status: int, code: str) -> RefusedError:
        reasons = {403: "rateLimitExceeded", 429: "rateLimitExceeded", 503: "backendError"}
        return refused(status, code or reasons.get(status, "internalError"), "injected")

    # --- Reading

    def _admit(self, call: Call, project: str, body: bytes) -> str:
        """Return the project's id."""
        if self._state.project(project) is None:
            raise refused(404, "notFound", f"Failed to find project {project}")
        resource = call.path.removeprefix("/compute/v1/")
        found = self._state.admit("compute", "", project, resource)
        permission = COMPUTE[call.operation]
        if call.operation.endswith(".insert") and permission in self._state.denied:
            resource += f"/{_json(body).get('name', '')}"
        if permission in self._state.denied:
            message = f"Required '{permission}' permission for '{resource}'"
            raise HttpApiError(permission_denied(permission, resource), message)
        return found.id

    def _resources(self, project: str, collection: str) -> Iterator[Resource]:
        prefix = f"{project}/compute/{collection}/"
        for key, found in sorted(self._state.existing.items()):
            if key.startswith(prefix):
                yield found

    def _places(self, call: Call, project: str, collection: str, name: str | None) -> Answer:
        base = f"{BASE}projects/{project}"
        found: list[dict[str, Any]] = []
        for each, region in ZONES.items() if collection == "zones" else ():
            found.append({"name": each, "region": f"{base}/regions/{region}"})
        for each in REGIONS if collection == "regions" else ():
            zones = [f"{base}/zones/{zone}" for zone, region in ZONES.items() if region == each]
            quotas = [
                {"metric": metric, "limit": limit, "usage": 0.0}
                for metric, limit in (
                    ("CPUS", 72.0),
                    ("SSD_TOTAL_GB", 500.0),
                    ("NVIDIA_L4_GPUS", 1.0),
                )
            ]
            found.append({"name": each, "zones": zones, "quotas": quotas})
        for item in found:
            item |= {"kind": f"compute#{collection[:-1]}", "status": "UP"}
            item["selfLink"] = f"{base}/{collection}/{item['name']}"
        if name is None:
            return json_answer(_page(call, f"{collection[:-1]}List", found))
        for item in found:
            if item["name"] == name:
                return json_answer(item)
        raise no_resource(f"projects/{project}/{collection}/{name}")

    def _aggregated(self, call: Call, project: str, collection: str) -> dict[str, Any]:
        base = f"{BASE}projects/{project}/zones"
        places = [f"zones/{each}" for each in ZONES]
        found: list[tuple[str, dict[str, Any]]]
        if collection == "machineTypes":
            found = [
                (f"zones/{zone}", {"name": name, "zone": zone, "guestCpus": cpus, "memoryMb": memory * 1024,
                                   "selfLink": f"{base}/{zone}/machineTypes/{name}"})
                for name, (cpus, memory, zones) in MACHINES.items() for zone in zones
            ]  # fmt: skip
        elif collection == "acceleratorTypes":
            found = [
                (f"zones/{zone}", {"name": name, "zone": f"{base}/{zone}",
                                   "selfLink": f"{base}/{zone}/acceleratorTypes/{name}"})
                for name, zones in ACCELERATORS.items() for zone in zones
            ]  # fmt: skip
        else:
            if _HOMES[collection] == "regions":
                places = [f"regions/{each}" for each in REGIONS]
            found = [
                (each.scope, each.shown(self._state))
                for each in self._resources(project, collection)
            ]
        items = [{"": place, **item} for place, item in sorted(found, key=lambda one: one[0])]
        page = _page(call, f"{collection.rstrip('s')}AggregatedList", items)
        grouped: dict[str, Any] = {
            place: {
                "warning": {
                    "code": "NO_RESULTS_ON_PAGE",
                    "message": f"There are no results for scope '{place}' on this page.",
                    "data": [{"key": "scope", "value": place}],
                }
            }
            for place in places
        }
        for item in page.pop("items", ()):
            place = item.pop("")
            grouped[place].pop("warning", None)
            item["kind"] = f"compute#{collection.rstrip('s')}"
            grouped[place].setdefault(collection, []).append(item)
        return {**page, "items": grouped}

    # --- Changing

    def _insert(self, made: Resource) -> dict[str, Any]:
        check_shape(made.data, SHAPES[made.collection])
        given = made.data.items()
        made.data = {key: value for key, value in given if value is not None and key not in OUTPUT}
        check(self._state, made)
        if made.key in self._state.existing:
            raise refused(409, "alreadyExists", f"The resource '{made.path}' already exists")
        new = {made.key: made}
        if made.collection == "networks" and made.data["autoCreateSubnetworks"]:
            new |= {each.key: each for each in automatic_subnetworks(made)}
        self._state.existing |= new

        def give_up(_: str) -> None:
            for key in new:
                self._state.existing.pop(key, None)

        return self._start("insert", made, give_up=give_up)

    def _patch(self, old: Resource, given: dict[str, Any]) -> dict[str, Any]:
        check_shape(given, SHAPES[old.collection])
        changed = Resource(
            old.project,
            old.scope,
            old.collection,
            {**old.data, **{key: given[key] for key in given if key not in OUTPUT}},
        )
        check(self._state, changed)
        if changed.name != old.name:
            raise refused(400, "invalid", "The name of a resource cannot be changed.")
        if changed.data == old.data:
            return self._start("patch", old, change=False)
        old.data = changed.data
        return self._start("patch", old)

    def _delete(self, found: Resource) -> dict[str, Any]:
        keys = {found.key}
        if found.collection == "networks":
            keys |= {each.key for each in subnetworks_of(self._state, found)}
        kind = found.collection.rstrip("s")
        user = next(users_of(self._state, found), None)
        problem = f"The {kind} resource '{found.path}' is already being used by '{user}'"
        if user is not None and not (self._state.late_refusals and kind == "network"):
            raise refused(400, "resourceInUseByAnotherResource", problem)

        def finish() -> None:
            for key in keys:
                self._state.existing.pop(key, None)

        error = "" if user is None else problem
        return self._start("delete", found, finish, error=error, change=user is None)

    def _start(
        self,
        verb: str,
        target: Resource,
        finish: Callable[[], None] = lambda: None,
        give_up: Callable[[str], None] = lambda _: None,
        *,
        error: str = "",
        change: bool = True,
    ) -> dict[str, Any]:
        if change:
            self._state.mark()
        return self._shown(
            self._state.start(
                f"{target.collection}.{verb}", new_name(), target.key, finish, give_up, error,
                verb=verb, project=target.project, scope=target.scope, link=target.link,
            )
        )  # fmt: skip

    # --- Operations

    def _polled(self, project: str, scope: str, name: str) -> dict[str, Any]:
        found = self._state.operations.get(name)
        if found is None or (found.details.get("project"), found.details["scope"]) != (
            project,
            scope,
        ):
            raise no_resource(f"projects/{project}/{scope}/operations/{name}")
        found.poll()
        return self._shown(found)

    def _shown(self, operation: Operation) -> dict[str, Any]:
        details = operation.details
        base = f"{BASE}projects/{details['project']}/{details['scope']}"
        shown = {
            "kind": "compute#operation",
            "id": str(int(operation.name[-15:], 16)),
            "name": operation.name,
            "operationType": details["verb"],
            "targetLink": details["link"],
            "status": "DONE" if operation.done else "RUNNING",
            "progress": 100 if operation.done else 0,
            "selfLink": f"{base}/operations/{operation.name}",
            "insertTime": "2026-11-27T01:00:00.000-08:00",
        }
        kind, _, where = details["scope"].partition("/")
        if where:
            shown[kind[:-1]] = base
        if operation.done and operation.error:
            in_use = "is already being used by" in operation.error
            code = "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE" if in_use else operation.code.name
            shown["error"] = {"errors": [{"code": code, "message": operation.error}]}
            shown["httpErrorStatusCode"] = 400
            shown["httpErrorMessage"] = "BAD REQUEST"
        return shown


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise refused(400, "parseError", "Parse Error")
    return found


def _page(call: Call, kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the page of the items that the call asks for."""
    matches = matcher(call.arg("filter"))
    items = [each for each in items if matches(each)]
    try:
        size = int(call.arg("maxResults") or _MOST)
        start = int(call.arg("pageToken") or 0)
    except ValueError:
        raise refused(
            400, "invalid", "Invalid value for field 'pageToken' or 'maxResults'."
        ) from None
    if not 0 <= size <= _MOST:
        raise refused(400, "invalid", f"Invalid value for field 'maxResults': '{size}'.")
    page: dict[str, Any] = {"kind": f"compute#{kind}", "items": items[start : start + size]}
    if start + size < len(items):
        page["nextPageToken"] = str(start + size)
    if not page["items"]:
        del page["items"]
    return page
