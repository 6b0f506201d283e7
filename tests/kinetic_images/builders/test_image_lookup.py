"""Addresses of images are split into repository and tag."""

from __future__ import annotations

import pytest
from building import Images

from kinetic_images.builders.image_lookup import existing_digest, split_image
from kinetic_images.errors import InvalidReferenceError


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("host/path:tag", ("host/path", "tag")),
        ("127.0.0.1:5000/a/b:1", ("127.0.0.1:5000/a/b", "1")),
    ],
)
def test_a_tag_is_what_follows_the_last_colon(image: str, expected: tuple[str, str]) -> None:
    assert split_image(image) == expected


@pytest.mark.parametrize("image", ["host:5000/path", "path:1", "host/path:", "h/p@sha256:0", ""])
def test_an_address_without_a_tag_is_refused(image: str) -> None:
    with pytest.raises(InvalidReferenceError):
        split_image(image)


def test_a_digest_is_that_of_the_tag_in_its_repository() -> None:
    images = Images({"host/path:1": "sha256:a"})

    assert existing_digest(images, "host/path:1") == "sha256:a"
    assert existing_digest(images, "host/path:2") is None
