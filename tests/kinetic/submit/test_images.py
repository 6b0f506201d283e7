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
        ("https://registry.example/image", "Use None"),
        ("registry.example/UPPER:tag", "Use None"),
        ("image:tag:tag", "Use None"),
        ("registry.example:４４３/image", "Use None"),
        (7, "Use None"),
    ],
)
def test_what_is_none_of_these_is_refused_with_what_is_near(given: object, hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_container_image(given)

    assert hint in (caught.value.hint or "")
