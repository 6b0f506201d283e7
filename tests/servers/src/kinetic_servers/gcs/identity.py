"""The sources of tokens: Google's token endpoint, and the metadata server of its machines."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final
from urllib.parse import parse_qs

from kinetic_servers.gcs.access import Tokens
from kinetic_servers.http.messages import Answer, Call, json_answer

METADATA: Final = "/computeMetadata/v1/"
_FLAVOR: Final = {"Metadata-Flavor": "Google"}
_TEXT: Final = {"Content-Type": "application/text", **_FLAVOR}
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


class IdentityCalls:
    """Issues tokens."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    async def token(self, call: Call) -> Answer:
        """Issue a token for a service account's assertion, a JWT whose signature is not verified."""
        form = parse_qs((await call.read()).decode())
        try:
            part = form["assertion"][0].split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            principal, until = str(claims["iss"]), float(claims["exp"])
        except (KeyError, ValueError, TypeError, IndexError):
            return _grant_error("Invalid JWT.")
        if self._tokens is None or until < time.time():
            return _grant_error("Invalid JWT: Token must be a short-lived token.")
        return json_answer(_new_token(self._tokens, principal))

    async def metadata(self, call: Call) -> Answer:
        """Respond as the metadata server, with the identity of the machine or pod."""
        tokens = self._tokens
        if call.path == "/":
            return Answer(200, b"computeMetadata/\n", dict(_TEXT))
        if call.headers.get("metadata-flavor") != "Google":
            return Answer(403, b"Missing Metadata-Flavor:Google header.", dict(_TEXT))
        what = call.path.removeprefix(METADATA).rstrip("/")
        constant = {
            "project/project-id": "test-project",
            "universe/universe-domain": "googleapis.com",
        }
        if what in constant:
            return Answer(200, constant[what].encode(), dict(_TEXT))
        prefix = "instance/service-accounts/"
        who, _, rest = what.removeprefix(prefix).partition("/")
        known = (
            tokens is not None and what.startswith(prefix) and who in ("default", tokens.machine)
        )
        if tokens is None or not known:
            return Answer(404, b"Not Found", dict(_TEXT))
        if rest == "token":
            return json_answer(_new_token(tokens, tokens.machine), headers=_FLAVOR)
        if rest == "email":
            return Answer(200, tokens.machine.encode(), dict(_TEXT))
        data = {"aliases": ["default"], "email": tokens.machine, "scopes": [_SCOPE]}
        return json_answer(data, headers=_FLAVOR)


def _new_token(tokens: Tokens, principal: str) -> dict[str, Any]:
    return {
        "access_token": tokens.issue(principal),
        "expires_in": int(tokens.lifetime),
        "token_type": "Bearer",
    }


def _grant_error(description: str) -> Answer:
    return json_answer({"error": "invalid_grant", "error_description": description}, status=400)
