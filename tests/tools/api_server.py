"""A stand-in for the API server of a cluster: it accepts dry runs, has a key that signs jobs, and records writes."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from kinetic_servers.http.messages import Answer, Call, Service, json_answer
from kinetic_servers.http.server import HttpServer

MISSING = {
    "kind": "Status",
    "code": 404,
    "reason": "NotFound",
    "message": "not found",
    "details": {"name": "it"},
}
KEY = {"data": {"key": b64encode(b"6b" * 32).decode()}}


class StandIn(HttpServer, Service):
    """A stand-in. Use it in a `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        """Method and path of each request that would have changed something."""
        self.forbidden: set[str] = set()
        """Resources (`secrets`) that the user may not create."""
        self.objects: dict[str, Any] = {}
        """What was created, by path."""

    def service(self, folder: Path) -> Service:
        return self

    def created(self, kind: str) -> Any:
        """Return the only object of *kind* that was created."""
        (found,) = (each for each in self.objects.values() if each.get("kind") == kind)
        return found

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig whose only context, `standin`, leads here."""
        path = folder / "kubeconfig"
        cluster = {"name": "standin", "cluster": {"server": self.endpoint}}
        context = {"name": "standin", "context": {"cluster": "standin", "user": "me"}}
        user = {"name": "me", "user": {"token": "token"}}
        path.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": [user]}))
        return path

    async def perform(self, call: Call) -> Answer:
        name = call.path.rpartition("/")[2]
        if call.method == "GET":
            known = {
                "apis": {"kind": "APIGroupList", "groups": []},
                "kinetic-key": {"kind": "Secret", "metadata": {"name": name}, **KEY},
                "default": {"kind": "ServiceAccount", "metadata": {"name": name}},
            }
            return _answer(self.objects.get(call.path) or known.get(name))
        if call.method == "PATCH":
            self.writes.append(f"{call.method} {call.path}")
            return _answer(self.objects.get(call.path))
        if name in self.forbidden:
            message = (
                f'{name} is forbidden: User "me" cannot create resource "{name}" in API group ""'
            )
            refused = {**MISSING, "code": 403, "reason": "Forbidden", "message": message}
            return json_answer(refused, status=403)
        created = json.loads(await call.read() or b"{}")
        metadata = created.setdefault("metadata", {})
        metadata["uid"] = "1"
        if call.arg("dryRun") != "All":
            self.writes.append(f"{call.method} {call.path}")
            if call.method == "POST":
                self.objects[f"{call.path}/{metadata['name']}"] = created
        return json_answer(created, status=201)


def _answer(found: Any) -> Answer:
    return json_answer(found or MISSING, status=200 if found else 404)
