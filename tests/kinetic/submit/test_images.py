"""Values of `container_image`."""

from __future__ import annotations

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.submit.images import ContainerImage, parse_container_image

ADDRESSES = (
    "python:3.11-slim",
    "us-docker.pkg.dev/project/repo/image:tag",
    "localhost:5000/image",
    f"registry.example/a/b_c@sha256:{64 * 'a'}",
)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, ContainerImage("default")),
        ("bundled", ContainerImage("bundled")),
        ("prebuilt", ContainerImage("prebuilt")),
        *((address, ContainerImage("custom", address)) for address in ADDRESSES),
    ],
)
def test_a_container_image_is_a_mode_or_an_address(given: str | None, meant: object) -> None:
    assert parse_container_image(given) == meant


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("bundeld", "Did you mean 'bundled'"), ("Prebuilt", "'prebuilt'"), ("python", "'python:latest'"),
        ("", "Use None"), (7, "Use None"), ("image:tag:tag", "Use None"),
        ("registry.example/image@sha256:abc", "its digest is not sha256: and 64"),
        ("registry.example:４４３/image", "Use None"),
        ("https://registry.example/image", "it begins with a scheme"),
        ("https://registry.example/image", "Did you mean 'registry.example/image'?"),
        ("registry.example/UPPER:Tag", "its path has capital letters"),
        ("registry.example/UPPER:Tag", "Did you mean 'registry.example/upper:Tag'?"),
        ("localhost:5000/Image", "Did you mean 'localhost:5000/image'?"),
        ("registry.example/my image:1", "it contains a space"),
        (" python:3.11", "Did you mean 'python:3.11'?"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_reason_and_a_similar_value(
    given: object, message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_container_image(given)

    assert message in str(caught.value)
