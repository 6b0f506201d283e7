"""Failures of HTTP connections: what they wrap, and whether a certificate is not trusted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from urllib3.exceptions import SSLError


def is_untrusted(error: BaseException) -> bool:
    """Return whether *error* means that a server's certificate is not trusted, which retries do not change."""
    return any(
        isinstance(cause, ssl.SSLCertVerificationError)
        # urllib3 compares names itself where OpenSSL does not.
        or (isinstance(cause, SSLError) and "doesn't match" in str(cause))
        for cause in causes(error)
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over *error* and the errors that it wraps, as arguments, reasons or causes, outermost first."""
    found: list[BaseException] = [error]
    for each in found:
        yield each
        inner = (*each.args, getattr(each, "reason", None), each.__cause__)
        found += [one for one in inner if isinstance(one, BaseException) and one not in found]


def cause_text(error: BaseException) -> str:
    """Return the innermost message, in one line, without what libraries wrap it in."""
    *_, last = causes(error)
    return (" ".join(str(last).split()) or type(last).__name__)[:300].rstrip(".")
