"""Requests to registries: authentication, redirects, retries, and errors as Kinetic's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from kinetic_images.errors import RegistryError, RegistryLoginError
from kinetic_images.registry.addresses import Addresses, shown
from kinetic_images.registry.credentials import Credentials, Login
from kinetic_images.registry.refusals import LARGEST_ANSWER, Call, Refusal, error_of
from kinetic_images.registry.tokens import Authorizer
from kinetic_payload.http.retry import GaveUpError, RetryPolicy, TransientError
from kinetic_payload.http.session import (
    NoResponseError,
    Outgoing,
    Response,
    Session,
    origin,
)

_T = TypeVar("_T")


class Client:
    """Sends requests to registries. Threads can share it."""

    def __init__(
        self,
        environ: Mapping[str, str] | None,
        google: Callable[[], Login | None] | None,
        policy: RetryPolicy | None,
    ) -> None:
        # docker and its helpers are configured by the environment that they inherit.
        found = os.environ if environ is None else environ  # noqa: TID251
        self.addresses = Addresses(found)
        self.policy = policy or RetryPolicy()
        self._session = Session(found, failure=RegistryError, proxies=environ)
        credentials = Credentials(found, google=google)
        self._authorizer = Authorizer(credentials, self.addresses, self._session)

    def url(self, call: Call, rest: str) -> str:
        """Return the address of *rest*, such as `manifests/3.11`, in the repository of *call*."""
        return f"{self.addresses.base(call.host)}/v2/{call.path}/{rest}"

    def send(
        self,
        call: Call,
        request: Outgoing,
        *,
        accept: Collection[int] = (),
        most: int = LARGEST_ANSWER,
    ) -> Response:
        """Send *request*, which may be repeated, and return the response.

        Its status is below 300, one of *accept*, or a 404 by which the registry itself says that there is no
        such thing, if *accept* has 404.

        Raises:
            RegistryError: The registry refuses it, or gave no usable response within the time limit.
        """
        return self.retried(
            call, lambda left: self.attempt(call, request, accept=accept, most=most, seconds=left)
        )

    def retried(
        self,
        call: Call,
        act: Callable[[float], _T],
        *,
        progress: Callable[[], int] = lambda: 0,
    ) -> _T:
        """Return `act(seconds)`, retried by the policy as long as it raises `TransientError`.

        Raises:
            RegistryUnavailableError: The time is up.
        """
        try:
            return self.policy.run(act, progress=progress)
        except GaveUpError as error:
            last = error.last
            seen = f"{last.reason} (tried for {error.seconds:g} s)"
            raise error_of(Refusal(429 if last.limited else 503), call, seen=seen) from error

    def attempt(
        self,
        call: Call,
        request: Outgoing,
        *,
        seconds: float,
        accept: Collection[int] = (),
        most: int | None = LARGEST_ANSWER,
    ) -> Response:
        """Send *request* once, without retries. If *most* is None, the body is left in the response's `pieces`.

        Raises:
            TransientError: Another try may succeed.
            RegistryError: The registry refuses it, or the response cannot be used.
        """

        with translated(call):
            response = self._authorized(call, request, seconds, most)
            if (
                request.method == "HEAD"
                and response.status == 404
                and not Refusal.of(response).absent
            ):
                # Some registries say only in the body that the response is theirs, and HEAD has none.
                response = self._authorized(call, replace(request, method="GET"), seconds, most)
        if response.status < 300 or (response.status in accept and response.status != 404):
            return response
        refusal = Refusal.of(response)
        if refusal.absent and 404 in accept:
            return response
        if refusal.transient:
            raise TransientError(
                f"{urlsplit(response.url).hostname} responded with {refusal}",
                retry_after=refusal.retry_after,
                limited=refusal.status == 429,
            )
        source = self._authorizer.source(call.host)
        if refusal.status in (401, 403):
            self._authorizer.forget(call.host)
        asked = [each.parameters.get("error") for each in refusal.challenges]
        if refusal.status == 401 and "insufficient_scope" in asked and source:
            # The login was accepted, and gave a token without the right.
            refusal = replace(refusal, status=403)
        raise error_of(refusal, call, source)

    def _authorized(
        self, call: Call, request: Outgoing, seconds: float, most: int | None
    ) -> Response:
        """Return the response to *request*, redirects followed, which only reading requests may be."""

        def check(target: str) -> None:
            where = shown(target)
            if request.method not in ("GET", "HEAD"):
                raise RegistryError(
                    f"Could not {call}: the registry redirects to {where}.",
                    hint="Use the address to which it redirects as the registry's host.",
                )
            if not self.addresses.permits(target):
                raise RegistryError(
                    f"Could not {call}: the registry redirects to {where}, which is not encrypted.",
                    hint="Log in to the network, or ask the operator of the registry.",
                )

        def sent_with(header: str | None) -> Response:
            own = {} if header is None else {"Authorization": header}
            sent = replace(request, headers={**request.headers, **own})
            response = self._session.open(sent, seconds=seconds, check=check)
            if most is None and response.status < 300:
                return response
            return response.read(most=most or LARGEST_ANSWER, seconds=seconds)

        header = self._authorizer.header(call)
        response = sent_with(header)
        if response.status != 401 or origin(response.url) != origin(request.url):
            return response
        try:
            header = self._authorizer.renew(call, Refusal.of(response).challenges, header, seconds)
        except RegistryLoginError:
            self._authorizer.forget(call.host)
            raise
        return sent_with(header)


@contextmanager
def translated(call: Call) -> Generator[None, None, None]:
    """Translate failures of a connection."""
    try:
        yield
    except NoResponseError as error:
        if error.transient:
            raise TransientError(f"{call.host}: {error.reason}") from error
        hint = "Check the address of the registry, a VPN or proxy."
        if error.untrusted:
            hint = "Set SSL_CERT_FILE to a file with its certificate authority; a proxy may intercept TLS."
        raise RegistryError(f"Could not {call}: {error.reason}.", hint=hint) from error
