from __future__ import annotations

import pytest

from kinetic_images.errors import (
    ImageNotFoundError,
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.registry.refusals import (
    Call,
    Challenge,
    Refusal,
    error_of,
    parse_challenges,
)
from kinetic_payload.http.session import Response

JSON = {"Content-Type": "application/json"}
GOOGLE = Call(host="us-docker.pkg.dev", path="p/r/i", doing="write it", right="push")
HUB = Call(host="docker.io", path="library/python", doing="read it")


def refusal(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Refusal:
    return Refusal.of(Response(status, JSON if headers is None else headers, body, ""))


@pytest.mark.parametrize(
    ("call", "found", "kind", "words"),
    [
        (GOOGLE, refusal(401), RegistryLoginError, "gcloud auth application-default login"),
        (HUB, refusal(401), RegistryLoginError, "docker login."),
        (GOOGLE, refusal(403), RegistryPermissionError, "roles/artifactregistry.writer"),
        (GOOGLE, refusal(403), RegistryPermissionError, "us-docker.pkg.dev/p/r/i"),
        (HUB, refusal(403), RegistryPermissionError, "right to pull"),
        (HUB, refusal(404), ImageNotFoundError, "Check the name"),
        (GOOGLE, refusal(404, b'{"errors":[{"code":"NAME_UNKNOWN"}]}'), ImageNotFoundError, "repositories create"),
        (HUB, refusal(404, b"<html>", {}), RegistryError, "not that of a registry"),
        (HUB, refusal(429), RegistryUnavailableError, "log in for a higher limit"),
        (HUB, refusal(503), RegistryUnavailableError, "Check the network"),
        (HUB, refusal(418, b"teapot"), RegistryError, "status 418 (teapot)"),
    ],
)  # fmt: skip
def test_each_refusal_is_an_error_with_the_next_step(
    call: Call, found: Refusal, kind: type[RegistryError], words: str
) -> None:
    error = error_of(found, call, "")

    assert type(error) is kind
    assert words in str(error)
    assert call.repository in str(error)


@pytest.mark.parametrize(
    ("status", "body", "headers", "absent"),
    [
        (404, b"", JSON, True),
        (404, b"", {"Docker-Distribution-Api-Version": "registry/2.0"}, True),
        (404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}', {}, True),
        (404, b'{"errors": []}', {}, True),
        (404, b"", {}, False),
        (404, b"", {"Content-Type": "text/html"}, False),
        (404, b"<html>Log in to the network</html>", JSON, False),
        (404, b'{"error": "not found"}', JSON, False),
        (403, b"", JSON, False),
        (410, b"", JSON, False),
    ],
)
def test_only_a_response_of_a_registry_shows_that_something_is_missing(
    status: int, body: bytes, headers: dict[str, str], absent: bool
) -> None:
    assert refusal(status, body, headers).absent is absent


def test_the_message_of_a_registry_is_quoted_and_shortened_without_credentials() -> None:
    body = b'{"errors": [{"code": "DENIED", "message": "see https://u:hunter2@h/ \\n %s"}, 7]}'
    found = refusal(403, body.replace(b"%s", b"x" * 1_000_000))

    assert str(found).startswith("status 403 (DENIED: see https://h/ x")
    assert "hunter2" not in str(error_of(found, HUB, "the file"))
    assert len(str(found)) < 600


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ()),
        ('Basic realm="a b"', (Challenge("basic", {"realm": "a b"}),)),
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
            'scope="repository:library/python:pull,push"',
            (
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.docker.io/token",
                        "service": "registry.docker.io",
                        "scope": "repository:library/python:pull,push",
                    },
                ),
            ),
        ),
        ('BEARER Realm = token , error="x\\"y", Basic realm=b', (Challenge("bearer", {"realm": "token", "error": 'x"y'}), Challenge("basic", {"realm": "b"}))),
        ('Negotiate, Basic realm="b"', (Challenge("negotiate"), Challenge("basic", {"realm": "b"}))),
        ('Bearer realm="a",realm="b"', (Challenge("bearer", {"realm": "a"}),)),
        ('Bearer realm="never ends', (Challenge("bearer"), Challenge("never"), Challenge("ends"))),
    ],
)  # fmt: skip
def test_challenges_are_read(header: str, expected: tuple[Challenge, ...]) -> None:
    assert parse_challenges(header) == expected


@pytest.mark.parametrize("part", ['a="', "a=", "a ,", '\\"'])
@pytest.mark.timeout(120)  # In quadratic time, it takes hours.
def test_a_huge_header_is_read_in_linear_time(part: str) -> None:
    parse_challenges("Bearer " + part * 500_000)
