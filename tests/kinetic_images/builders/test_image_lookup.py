"""Addresses of images are split into repository and tag."""

from __future__ import annotations

import pytest
from building import Images

from kinetic_images.builders.image_lookup import existing_digest, split_image
from kinetic_images.errors import InvalidReferenceError


def test_a_tag_is_the_text_after_the_last_colon() -> None:
    assert split_image("127.0.0.1:5000/a/b:1") == ("127.0.0.1:5000/a/b", "1")
    images = Images({"host/path:1": "sha256:a"})
    assert existing_digest(images, "host/path:1") == "sha256:a"
    assert existing_digest(images, "host/path:2") is None


@pytest.mark.parametrize("image", ["host:5000/path", "path:1", "host/path:", "h/p@sha256:0", ""])
def test_an_address_without_a_tag_is_refused(image: str) -> None:
    with pytest.raises(InvalidReferenceError):
        split_image(image)
