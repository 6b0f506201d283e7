"""The sources of tokens: Google's token endpoint, and the metadata server of its machines."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final
from urllib.parse import parse_qs

from kinetic_payload.testing.gcs.access import Tokens
from kinetic_payload.testing.gcs.answers import JSON, Answer, json_answer
from kinetic_payload.testing.gcs.calls import Call

METADATA: Final = "/computeMetadata/v1/"
_FLAVOR: Final = {"Metadata-Flavor": "Google"}
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


class IdentityCalls:
    """Issues tokens."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    async def token(self, call: Call) -> Answer:
        """Issue a token for a service account's assertion, a JWT whose signature is not verified."""
        form = parse_qs((await call.read()).decode())
        try:
            claims = _claims(form["assertion"][0])
            principal, until = str(claims["iss"]), float(claims["exp"])
        except (KeyError, ValueError, TypeError, IndexError):
            return _grant_error("Invalid JWT.")
        if self._tokens is None or until < time.time():
            return _grant_error("Invalid JWT: Token must be a short-lived token.")
        return json_answer(self._new_token(self._tokens, principal))

    async def metadata(self, call: Call) -> Answer:
        """Respond as the metadata server, with the identity of the machine or pod."""
        tokens = self._tokens
        if call.path == "/":
            return Answer(200, b"computeMetadata/\n", _text())
        if call.headers.get("metadata-flavor") != "Google":
            return Answer(403, b"Missing Metadata-Flavor:Google header.", _text())
        what = call.path.removeprefix(METADATA).rstrip("/")
        principal = tokens.machine if tokens is not None else None
        if what == "project/project-id":
            return Answer(200, b"test-project", _text())
        if what == "universe/universe-domain":
            return Answer(200, b"googleapis.com", _text())
        prefix = "instance/service-accounts/"
        who, _, rest = what.removeprefix(prefix).partition("/")
        known = what.startswith(prefix) and who in ("default", principal)
        if tokens is None or principal is None or not known:
            return Answer(404, b"Not Found", _text())
        if rest == "token":
            return json_answer(self._new_token(tokens, principal), headers=_FLAVOR)
        if rest == "email":
            return Answer(200, principal.encode(), _text())
        data = {"aliases": ["default"], "email": principal, "scopes": [_SCOPE]}
        return json_answer(data, headers=_FLAVOR)

    def _new_token(self, tokens: Tokens, principal: str) -> dict[str, Any]:
        return {
            "access_token": tokens.issue(principal),
            "expires_in": int(tokens.lifetime),
            "token_type": "Bearer",
        }


def _text() -> dict[str, str]:
    return {"Content-Type": "application/text", **_FLAVOR}


def _grant_error(description: str) -> Answer:
    data = {"error": "invalid_grant", "error_description": description}
    return Answer(400, json.dumps(data).encode(), {"Content-Type": JSON})


def _claims(assertion: str) -> dict[str, Any]:
    part = assertion.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))
