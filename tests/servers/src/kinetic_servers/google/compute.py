"""Compute's REST API, version 1: <https://docs.cloud.google.com/compute/docs/reference/rest/v1>."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from kinetic_servers.google.gate import Gate, HttpApiError
from kinetic_servers.google.networks import (
    BASE,
    SHAPES,
    Resource,
    check,
    check_ready,
    no_resource,
    refused,
    users_of,
)
from kinetic_servers.google.places import ACCELERATORS, MACHINES, REGIONS, ZONES
from kinetic_servers.google.state import Operation, State, new_name, permission_denied
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer
from kinetic_servers.http.shapes import check_shape

_PATH: Final = re.compile(
    r"/compute/v1/projects/(?P<project>[^/]+)/"
    r"(?:(?P<scope>global|aggregated|regions/[^/]+)/)?(?P<collection>[A-Za-z]+)(?:/(?P<name>[^/]+))?"
)
_METHODS: Final = {"GET": "get", "POST": "insert", "DELETE": "delete", "PATCH": "patch"}
_OPERATIONS: Final = {
    "acceleratorTypes.aggregatedList", "disks.aggregatedList", "machineTypes.aggregatedList", "zones.list",
    "firewalls.delete", "firewalls.list", "operations.get",
    "networks.delete", "networks.get", "networks.insert",
    "routers.delete", "routers.get", "routers.insert", "routers.patch",
    "subnetworks.delete", "subnetworks.get", "subnetworks.insert",
}  # fmt: skip
_VERBS: Final = {"insert": "create", "aggregatedList": "list", "patch": "update"}
"""Verb of a method → that of its permission, where they differ."""
_FILTER: Final = re.compile(
    r"(?P<field>[\w.-]+)(?:=(?P<value>[\w.-]+)| eq \"(?P<pattern>[^\"]+)\")"
)


class ComputeService(Gate):
    """Performs calls on the resources in a state. Lists have one page."""

    def __init__(self, state: State, accepts: Callable[[str], bool]) -> None:
        super().__init__(state)
        self._accepts = accepts
        """Whether a token is valid."""

    def route(self, call: Call) -> None:
        """Find the operation, such as `networks.insert`."""
        match = _PATH.fullmatch(call.path)
        if match is None:
            return
        verb = _METHODS.get(call.method, "unknown")
        if verb == "get" and not match["name"]:
            verb = "aggregatedList" if match["scope"] == "aggregated" else "list"
        call.operation = f"{match['collection']}.{verb}"

    def describe(self, call: Call) -> str:
        return f"{call.method} {call.path.removeprefix('/compute/v1/')}"

    async def act(self, call: Call) -> Answer:
        body = await call.read()
        match = _PATH.fullmatch(call.path)
        if match is None or call.operation not in _OPERATIONS:
            raise refused(404, "notFound", "The requested URL was not found on this server.")
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not self._accepts(token):
            raise refused(401, "required", "Login Required.")
        for name in call.query.keys() - {"filter"}:
            message = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
            raise refused(400, "badRequest", message)
        collection, _, verb = call.operation.partition(".")
        given = json.loads(body or b"{}")
        project = self._admit(call, match["project"], collection, verb, given.get("name", ""))
        scope, name = match["scope"] or "", match["name"] or ""
        if scope.startswith("regions/") and scope.partition("/")[2] not in REGIONS:
            raise refused(400, "invalid", f"Invalid value for field 'region': '{scope}'.")
        if collection == "operations":
            return json_answer(self._polled(project, scope, name))
        if name == "" and verb != "insert":
            return json_answer({"items": self._listed(call, project, collection, verb)})
        if verb == "insert":
            return json_answer(self._insert(Resource(project, scope, collection, given)))
        wanted = Resource(project, scope, collection, {"name": name})
        resource = self._state.existing.get(wanted.key)
        if resource is None:
            raise no_resource(wanted.path)
        if verb == "get":
            answer = json_answer(resource.shown())
            self._state.look(resource.key)
            return answer
        check_ready(self._state, resource)
        change = self._delete(resource) if verb == "delete" else self._patch(resource, given)
        return json_answer(change)

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        detail = {"message": error.message, "domain": "global", "reason": error.code}
        data: dict[str, Any] = {
            "code": error.status, "message": error.message, "errors": [detail]
        }  # fmt: skip
        if isinstance(error, HttpApiError):
            given = error.error
            data["status"] = given.code.name
            info = {"reason": given.reason, "domain": given.domain, "metadata": {**given.metadata}}
            data["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}]
        return json_answer({"error": data}, status=error.status)

    def injected(self, status: int, code: str) -> RefusedError:
        return refused(status, code or "backendError", "injected")

    def _admit(self, call: Call, project: str, collection: str, verb: str, name: str) -> str:
        """Return the project's id."""
        if self._state.project(project) is None:
            raise refused(404, "notFound", f"Failed to find project {project}")
        resource = "/".join(filter(None, (call.path.removeprefix("/compute/v1/"), name)))
        found = self._state.admit("compute", "", project, resource)
        kind = "globalOperations" if collection == "operations" else collection
        permission = f"compute.{kind}.{_VERBS.get(verb, verb)}"
        if permission in self._state.denied:
            message = f"Required '{permission}' permission for '{resource}'"
            raise HttpApiError(permission_denied(permission, resource), message)
        return found.id

    def _listed(self, call: Call, project: str, collection: str, verb: str) -> Any:
        """Return what a list shows: of zones or the whole project, grouped by place if it is aggregated."""
        base = f"{BASE}projects/{project}/zones"
        found: list[dict[str, Any]]
        if collection == "zones":
            found = [{"name": each} for each in ZONES]
        elif collection in ("machineTypes", "acceleratorTypes"):
            known = MACHINES if collection == "machineTypes" else ACCELERATORS
            # One API shows the name of the zone, the other one its address.
            start = "" if collection == "machineTypes" else f"{base}/"
            found = [
                {"name": name, "zone": f"{start}{zone}"}
                for name, zones in known.items()
                for zone in zones
            ]
        else:
            prefix = f"{project}/compute/{collection}/"
            existing = sorted(self._state.existing.items())
            found = [each.shown() for key, each in existing if key.startswith(prefix)]
        found = [each for each in found if _matches(each, call.arg("filter"))]
        if verb == "list":
            return found
        grouped: dict[str, Any] = {
            f"zones/{each}": {"warning": {"code": "NO_RESULTS_ON_PAGE"}} for each in ZONES
        }
        for item in found:
            place = grouped[f"zones/{item['zone'].rpartition('/')[2]}"]
            place.pop("warning", None)
            place.setdefault(collection, []).append(item)
        return grouped

    # --- Changing

    def _insert(self, made: Resource) -> dict[str, Any]:
        check_shape(made.data, SHAPES[made.collection])
        check(self._state, made)
        if made.key in self._state.existing:
            raise refused(409, "alreadyExists", f"The resource '{made.path}' already exists")
        self._state.existing[made.key] = made
        remove = self._state.existing.pop
        return self._start("insert", made, give_up=lambda _: remove(made.key, None))

    def _patch(self, old: Resource, given: dict[str, Any]) -> dict[str, Any]:
        check_shape(given, SHAPES[old.collection])
        changed = Resource(old.project, old.scope, old.collection, {**old.data, **given})
        check(self._state, changed)
        old.data = changed.data
        return self._start("patch", old)

    def _delete(self, found: Resource) -> dict[str, Any]:
        user = next(users_of(self._state, found), None)
        if user is not None:
            raise refused(
                400,
                "resourceInUseByAnotherResource",
                f"The {found.collection[:-1]} resource '{found.path}' is already being used by '{user}'",
            )
        return self._start("delete", found, lambda: self._state.existing.pop(found.key, None))

    def _start(
        self,
        verb: str,
        target: Resource,
        finish: Callable[[], Any] = lambda: None,
        give_up: Callable[[str], Any] = lambda _: None,
    ) -> dict[str, Any]:
        self._state.mark()
        return self._shown(
            self._state.start(
                f"{target.collection}.{verb}", new_name(), target.key, finish, give_up,
                project=target.project, scope=target.scope, link=target.link,
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
        shown: dict[str, Any] = {
            "kind": "compute#operation",
            "name": operation.name,
            "targetLink": details["link"],
            "status": "DONE" if operation.done else "RUNNING",
            "selfLink": f"{BASE}projects/{details['project']}/{details['scope']}/operations/{operation.name}",
        }
        if operation.done and operation.error:
            error = {"code": operation.code.name, "message": operation.error}
            shown["error"] = {"errors": [error]}
        return shown


def _matches(item: dict[str, Any], text: str) -> bool:
    """Return whether an item fits the parameter `filter`: `FIELD=VALUE` or `FIELD eq "PATTERN"`; Google knows more."""
    if not text:
        return True
    match = _FILTER.fullmatch(text)
    if match is None:
        raise refused(400, "invalid", f"Invalid value for field 'filter': '{text}'.")
    found: Any = item
    for part in match["field"].split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if match["pattern"]:
        return bool(re.fullmatch(match["pattern"], str(found)))
    return str(found) == match["value"]
