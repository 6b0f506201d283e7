from __future__ import annotations

import pytest

from kinetic_images.errors import InvalidReferenceError
from kinetic_images.registry.names import is_google, parse_reference

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python", "docker.io/library/python"),
        ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
        ("library/python", "docker.io/library/python"),
        ("index.docker.io/someone/image", "docker.io/someone/image"),
        ("registry-1.docker.io/python", "docker.io/library/python"),
        ("127.0.0.1:5000/kn:a", "127.0.0.1:5000/kn:a"),
        ("localhost/kn", "localhost/kn"),
        ("[::1]:5000/kn/x", "[::1]:5000/kn/x"),
        ("GHCR.io/a/b__c-d.e/f", "ghcr.io/a/b__c-d.e/f"),
        (f"us-docker.pkg.dev/p/r/i:t@{DIGEST}", f"us-docker.pkg.dev/p/r/i:t@{DIGEST}"),
    ],
)
def test_a_name_is_completed_as_docker_does(text: str, expected: str) -> None:
    assert str(parse_reference(text)) == expected


def test_a_reference_leads_to_others_of_its_repository() -> None:
    reference = parse_reference(f"ghcr.io/a/b:1@{DIGEST}")

    assert reference.repository == "ghcr.io/a/b"
    assert reference.version == DIGEST
    assert str(reference.tagged("2")) == "ghcr.io/a/b:2"
    assert str(reference.tagged("2").at(DIGEST)) == f"ghcr.io/a/b@{DIGEST}"
    assert parse_reference("ghcr.io/a/b").version == "latest"
    with pytest.raises(InvalidReferenceError):
        reference.tagged("a/../b")
    with pytest.raises(InvalidReferenceError):
        reference.at("sha256:0")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no path"),
        ("ghcr.io/", "no path"),
        ("https://ghcr.io/a/b", "begins with a scheme"),
        ("ghcr.io/Project/b", "in lower case"),
        ("a b/c", "no path"),
        ("ghcr.io/a/../b", "no path"),
        (f"a/b:{'x' * 129}", "is no tag"),
        ("a/b@sha256:abc", "is no digest"),
        (f"a/b@sha512:{'0' * 128}", "is no digest"),
        ("-h.io/b", "is no host"),
        ("h.io:99999/b", "is no host"),
        (f"h.io/{'a' * 256}", "more than 255"),
    ],
)
def test_an_invalid_name_is_refused_with_its_cause(text: str, cause: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse_reference(text)
    assert cause in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "me:hunter2@ghcr.io/a/b",
        "https://me:hunter2@ghcr.io/a/b",
        "https://me:hun@hunter2@ghcr.io/a/b",
        "me:hunter2@ghcr.io:443",
        f"me:hun/hunter2@ghcr.io/a/b@{DIGEST}",
        "me:hunter2@ghcr.io/a/b@sha256:0",
    ],
)
def test_a_password_in_a_name_is_not_in_the_error(text: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse_reference(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("us-central1-docker.pkg.dev", True),
        ("gcr.io", True),
        ("eu.gcr.io", True),
        ("evilgcr.io", False),
        ("pkg.dev.evil.com", False),
        ("ghcr.io", False),
    ],
)
def test_tokens_of_google_are_for_its_registries_only(host: str, expected: bool) -> None:
    assert is_google(host) is expected
