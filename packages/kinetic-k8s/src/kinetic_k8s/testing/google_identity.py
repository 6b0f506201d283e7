"""A token service, and a service account whose key it accepts: credentials without Google."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

_ACCOUNT: Final = "tester@test-project.iam.gserviceaccount.com"


class GoogleIdentity:
    """A service account with a key file, and the service that exchanges the key for tokens.

    *token* is what it hands out; None: a new one each time. *seconds* is how long each is valid. Use it in
    a `with` block.
    """

    def __init__(self, folder: Path, *, token: str | None = None, seconds: int = 3600) -> None:
        self.file = folder / "service-account.json"
        """The key file: the value for GOOGLE_APPLICATION_CREDENTIALS."""
        self.token = token
        self.seconds = seconds
        self.issued: list[str] = []
        """The tokens that were handed out."""
        self.refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        """The response to a key that is not accepted."""
        self._public: dict[str, bytes] = {}
        self._server = _TokenServer(self)
        self.log_in()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def log_in(self) -> None:
        """Write a key file with a new key, which is accepted from now on."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        key_id = secrets.token_hex(8)
        self._public[key_id] = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        account = {
            "type": "service_account",
            "project_id": "test-project",
            "private_key_id": key_id,
            "private_key": private.decode(),
            "client_email": _ACCOUNT,
            "client_id": "1",
            "token_uri": f"http://127.0.0.1:{self._server.server_address[1]}/token",
        }
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps(account), encoding="utf-8")
        written.replace(self.file)

    def revoke(self) -> None:
        """Accept none of the present keys any more; tokens that were handed out stay valid."""
        self._public.clear()

    def accepts(self, token: str, audience: str) -> bool:
        """Return whether *token* was handed out here, or was signed with an accepted key.

        A signed token is for one *audience*, or has scopes: https://google.aip.dev/auth/4111.
        """
        claims = self._claims(token)
        return token in self.issued or claims.get("aud") == audience or "scope" in claims

    def exchange(self, assertion: str) -> dict[str, Any] | None:
        """Return the response to a signed *assertion*; None if it is not accepted."""
        if not self._claims(assertion):
            return None
        token = self.token or f"token-{secrets.token_hex(8)}"
        self.issued.append(token)
        return {"access_token": token, "expires_in": self.seconds, "token_type": "Bearer"}

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Return what the *token* claims; nothing if it was not signed with an accepted key."""
        try:
            found: Mapping[str, Any] = jwt.decode(token, certs=self._public)  # type: ignore[no-untyped-call]
        except ValueError:
            return {}
        return found if found["iss"] == _ACCOUNT else {}


class _TokenServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, identity: GoogleIdentity) -> None:
        super().__init__(("127.0.0.1", 0), _TokenHandler)
        self.identity = identity


class _TokenHandler(BaseHTTPRequestHandler):
    """https://developers.google.com/identity/protocols/oauth2/service-account#httprest"""

    protocol_version = "HTTP/1.1"
    server: _TokenServer

    def do_POST(self) -> None:
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        found = self.server.identity.exchange(sent.get("assertion", [""])[0])
        body = json.dumps(found or self.server.identity.refusal).encode()
        self.send_response(200 if found else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
