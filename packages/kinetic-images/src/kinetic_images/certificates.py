"""Certificates of the authorities that connections trust, as the environment names them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kinetic_payload.errors import KineticError

_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def tls_context(environ: Mapping[str, str], failure: type[KineticError]) -> ssl.SSLContext:
    """Return the settings of TLS with the certificates that *environ* names, or those of the system.

    `SSL_CERT_FILE` precedes `REQUESTS_CA_BUNDLE`; each names a file or a folder.

    Raises:
        KineticError: The certificates cannot be read; the error is a *failure*.
    """
    variable = next((name for name in _VARIABLES if environ.get(name)), None)
    if variable is None:
        return ssl.create_default_context()
    path = Path(environ[variable])
    try:
        if path.is_dir():
            return ssl.create_default_context(capath=str(path))
        return ssl.create_default_context(cafile=str(path))
    except OSError as error:  # `SSLError` is one.
        raise failure(
            f"The certificates in {path}, which {variable} names, cannot be read: {error}.",
            hint=f"Correct or unset {variable}.",
        ) from error
