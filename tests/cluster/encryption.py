"""Encryption for servers that tests put before the API server: clients send no token without it."""

from __future__ import annotations

import ssl
from base64 import b64encode
from http.server import ThreadingHTTPServer

import trustme

_AUTHORITY = trustme.CA()
CERTIFICATES = _AUTHORITY.cert_pem.bytes().decode()


def encrypt(server: ThreadingHTTPServer) -> str:
    """Let *server* on this machine use TLS; return its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    # The handshake is made by the thread of a connection.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    return f"https://127.0.0.1:{server.server_address[1]}"


def cluster_at(url: str) -> dict[str, str]:
    """Return the `cluster` of a kubeconfig for an encrypted server."""
    data = b64encode(CERTIFICATES.encode()).decode()
    return {"server": url, "certificate-authority-data": data}
