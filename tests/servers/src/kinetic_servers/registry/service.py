"""The registry as a service: authentication before each call, and errors in the form of the specification."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs

from kinetic_servers.http.messages import Answer, Call, RefusedError, Service, json_answer
from kinetic_servers.registry.access import Access
from kinetic_servers.registry.api import Api

_RIGHTS: Final = {"pull": "pull", "push": "pull,push"}


class RegistryService(Service):
    """Performs calls of callers that may make them."""

    headers = {"Docker-Distribution-Api-Version": "registry/2.0"}

    def __init__(self, api: Api, access: Access | None) -> None:
        self._api = api
        self._access = access

    async def perform(self, call: Call) -> Answer:
        access = self._access
        if access is not None and call.path == "/token":
            return await _token(call, access)
        if access is not None and not call.path.startswith("/_blobs/"):
            needed = self._api.needs(call)
            call.principal, wrong = access.check(call.headers.get("authorization", ""), needed)
            if wrong:
                raise _challenge(call, access, needed, wrong)
        return await self._api.answer(call)

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        listed = [{"code": error.code, "message": error.message, "detail": None}]
        return json_answer({"errors": listed}, status=error.status, headers=error.headers)


def _challenge(call: Call, access: Access, needed: Mapping[str, str], wrong: str) -> RefusedError:
    if access.basic and wrong == "insufficient":
        return RefusedError(403, "DENIED", "requested access to the resource is denied")
    value = 'Basic realm="registry"'
    if not access.basic:
        realm = access.realm or f"{call.base}/token"
        value = f'Bearer realm="{realm}",service="{access.service}"'
        if needed:
            scopes = (f"repository:{name}:{_RIGHTS[what]}" for name, what in needed.items())
            value += f',scope="{" ".join(scopes)}"'
        if wrong != "missing":
            value += f',error="{wrong}_{"scope" if wrong == "insufficient" else "token"}"'
    headers = {"WWW-Authenticate": value}
    return RefusedError(401, "UNAUTHORIZED", "authentication required", headers=headers)


async def _token(call: Call, access: Access) -> Answer:
    user: str | None
    if call.method == "POST":
        form = parse_qs((await call.read()).decode())
        user = access.refresh.get(form.get("refresh_token", [""])[0])
        scopes = form.get("scope", [])
    else:
        user = access.log_in(call.headers.get("authorization", ""))
        scopes = call.query.get("scope", [])
    if user is None:
        raise RefusedError(401, "UNAUTHORIZED", "incorrect username or password")
    token = access.issue(user, scopes)
    name = "access_token" if call.method == "POST" else "token"
    issued = datetime.now(UTC).isoformat()
    return json_answer({name: token, "expires_in": access.seconds, "issued_at": issued})
