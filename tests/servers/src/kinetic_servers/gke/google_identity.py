"""A token service, and a service account whose key it accepts: credentials without Google."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from kinetic_servers.http.messages import Answer, Call, Service, json_answer
from kinetic_servers.http.server import HttpServer

_ACCOUNT: Final = "tester@test-project.iam.gserviceaccount.com"


def write_key_file(
    path: Path, key: rsa.RSAPrivateKey, email: str, endpoint: str, *, key_id: str = "1"
) -> Path:
    """Write what `gcloud iam service-accounts keys create` writes, for the token service at *endpoint*."""
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
        "client_email": email,
        "client_id": "1",
        "token_uri": f"{endpoint}/token",
    }
    path.write_text(json.dumps(account), encoding="utf-8")
    return path


class GoogleIdentity(HttpServer, Service):
    """A service account with a key file, and the service that exchanges the key for tokens.

    *token* is what it hands out; None: a new one each time. *seconds* is how long each is valid. The key file
    is written when it starts.
    """

    def __init__(self, folder: Path, *, token: str | None = None, seconds: int = 3600) -> None:
        super().__init__()
        self.file = folder / "service-account.json"
        """The key file: the value for GOOGLE_APPLICATION_CREDENTIALS."""
        self.token = token
        self.seconds = seconds
        self.issued: list[str] = []
        """The tokens that were handed out."""
        self.refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        """The response to a key that is not accepted."""
        self._public: dict[str, bytes] = {}

    def start(self) -> None:
        """Start the token service, and write the key file."""
        super().start()
        self.log_in()

    def service(self, folder: Path) -> GoogleIdentity:
        return self

    def log_in(self) -> None:
        """Write a key file with a new key, which is accepted from now on."""
        # A short key: whoever reads one of 2048 bits checks it for 0.05 s.
        key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        key_id = secrets.token_hex(8)
        self._public[key_id] = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        written = self.file.with_suffix(".new")
        write_key_file(written, key, _ACCOUNT, self.endpoint, key_id=key_id)
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

    async def perform(self, call: Call) -> Answer:
        """Exchange a signed assertion for a token.

        https://developers.google.com/identity/protocols/oauth2/service-account#httprest
        """
        sent = parse_qs((await call.read()).decode())
        if not self._claims(sent.get("assertion", [""])[0]):
            return json_answer(self.refusal, status=400)
        token = self.token or f"token-{secrets.token_hex(8)}"
        self.issued.append(token)
        found = {"access_token": token, "expires_in": self.seconds, "token_type": "Bearer"}
        return json_answer(found)

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Return what the *token* claims; nothing if it was not signed with an accepted key."""
        try:
            found: Mapping[str, Any] = jwt.decode(token, certs=self._public)  # type: ignore[no-untyped-call]
        except ValueError:
            return {}
        return found if found["iss"] == _ACCOUNT else {}
