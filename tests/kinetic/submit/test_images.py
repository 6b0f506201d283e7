"""What `container_image` may say."""

from __future__ import annotations

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.submit.images import ContainerImage, parse_container_image


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, ContainerImage("default")),
        ("bundled", ContainerImage("bundled")),
        ("prebuilt", ContainerImage("prebuilt")),
        *(
            (address, ContainerImage("custom", address))
            for address in (
                "python:3.11-slim",
                "us-docker.pkg.dev/project/repo/image:tag",
                "localhost:5000/image",
                f"registry.example/a/b_c@sha256:{64 * 'a'}",
            )
        ),
    ],
)
def test_it_is_nothing_a_mode_or_an_address(given: str | None, meant: ContainerImage) -> None:
    assert parse_container_image(given) == meant


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("bundeld", "'bundled'"),
        ("Prebuilt", "'prebuilt'"),
        ("python", "'python:latest'"),
        ("", "Use None"),
        ("https://registry.example/image", "Did you mean 'registry.example/image'?"),
        ("registry.example/UPPER:Tag", "Did you mean 'registry.example/upper:Tag'?"),
        ("localhost:5000/Image", "Did you mean 'localhost:5000/image'?"),
        ("registry.example/my image:1", "Did you mean 'registry.example/myimage:1'?"),
        (" python:3.11", "Did you mean 'python:3.11'?"),
        ("registry.example/image@sha256:abc", "Use None"),
        ("image:tag:tag", "Use None"),
        ("registry.example:４４３/image", "Use None"),
        (7, "Use None"),
    ],
)
def test_what_is_none_of_these_is_refused_with_what_is_near(given: object, hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_container_image(given)

    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("registry.example/Image:1", "its path has capital letters"),
        ("registry.example/image: 1", "it contains a space"),
        ("http://registry.example/image", "it begins with a scheme"),
        ("registry.example/image@sha256:ABC", "its digest is not sha256: and 64"),
    ],
)
def test_a_typing_error_in_an_address_is_named(given: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        parse_container_image(given)
