from __future__ import annotations

import json
from typing import Any

import pytest

from kinetic_images.errors import InvalidImageError
from kinetic_images.registry.oci import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    Platform,
    digest_of,
    parse_config,
    parse_manifest,
)

DIGEST = f"sha256:{'0a' * 32}"
BLOB = {"mediaType": OCI_LAYER, "digest": DIGEST, "size": 3}
MANIFEST = {"schemaVersion": 2, "config": BLOB, "layers": [BLOB]}
CONFIG = {"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [DIGEST]}}


def encoded(data: Any, **changes: Any) -> bytes:
    return json.dumps({**data, **changes}).encode()


@pytest.mark.parametrize("media_type", [DOCKER_MANIFEST, OCI_MANIFEST])
def test_a_manifest_is_read_with_or_without_its_own_type(media_type: str) -> None:
    named = parse_manifest(encoded(MANIFEST, mediaType=media_type), media_type)
    unnamed = parse_manifest(encoded(MANIFEST, unknown=[1], annotations=None), media_type)

    assert isinstance(named, Manifest)
    assert named == unnamed
    assert named.media_type == media_type
    assert named.layers[0].digest == DIGEST
    # A type of no use is replaced by the content.
    assert isinstance(parse_manifest(encoded(MANIFEST), "application/json"), Manifest)
    index = parse_manifest(b'{"schemaVersion": 2, "manifests": []}', "")
    assert isinstance(index, Index)
    assert index.media_type == OCI_INDEX


@pytest.mark.parametrize(
    ("data", "media_type", "cause"),
    [
        (b"", OCI_MANIFEST, "not valid JSON"),
        (b"<html>", OCI_MANIFEST, "not valid JSON"),
        (b"[" * 100_000, OCI_MANIFEST, "not valid JSON"),
        (b"\xff", OCI_MANIFEST, "not valid JSON"),
        (b"[]", OCI_MANIFEST, "no JSON object"),
        (b"{}", OCI_MANIFEST, "missing required field"),
        (encoded(MANIFEST, layers=[{**BLOB, "digest": "sha256:../../x"}]), OCI_MANIFEST, "no SHA-256"),
        (encoded(MANIFEST, layers=[{**BLOB, "size": -1}]), OCI_MANIFEST, "negative"),
        (encoded(MANIFEST, layers=[{**BLOB, "size": "3"}]), OCI_MANIFEST, "malformed"),
        (encoded(MANIFEST, manifests=[]), OCI_MANIFEST, "ambiguous"),
        (encoded(MANIFEST, mediaType=OCI_INDEX), OCI_MANIFEST, "names"),
        (b'{"schemaVersion": 1}', "application/vnd.docker.distribution.manifest.v1+json", "not one of an image"),
        (b'{"schemaVersion": 2, "x": 1}', "application/vnd.other", "not one of an image"),
    ],
)  # fmt: skip
def test_a_malformed_manifest_is_refused_with_its_cause(
    data: bytes, media_type: str, cause: str
) -> None:
    with pytest.raises(InvalidImageError) as caught:
        parse_manifest(data, media_type)
    assert cause in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_rendered_manifest_is_read_again_and_has_one_digest() -> None:
    layer = Descriptor(media_type=OCI_LAYER, digest=DIGEST, size=3, annotations={"a": "b"})
    manifest = Manifest(media_type=DOCKER_MANIFEST, config=layer, layers=(layer, layer))
    index = Index(manifests=(layer,))

    assert parse_manifest(manifest.render(), DOCKER_MANIFEST) == manifest
    assert parse_manifest(index.render(), OCI_INDEX) == index
    assert manifest.render() == parse_manifest(manifest.render(), DOCKER_MANIFEST).render()
    assert json.loads(manifest.render())["schemaVersion"] == 2


@pytest.mark.parametrize(
    ("platforms", "architecture", "expected"),
    [
        (["linux/amd64/", "linux/arm64/v8"], "arm64", 1),
        (["linux/amd64/v3", "linux/amd64/", "linux/amd64/v2"], "amd64", 1),
        (["linux/amd64/v3", "linux/amd64/v2"], "amd64", 1),
        (["linux/arm64/v9", "linux/arm64/v8"], "arm64", 1),
        (["windows/amd64/", "unknown/unknown/", "linux/arm/v7"], "amd64", None),
        ([None], "amd64", None),
    ],
)
def test_the_most_compatible_image_of_the_platform_is_chosen(
    platforms: list[str | None], architecture: str, expected: int | None
) -> None:
    listed = []
    for number, name in enumerate(platforms):
        system, machine, variant = name.split("/") if name else ("", "", "")
        platform = Platform(os=system, architecture=machine, variant=variant) if name else None
        digest = digest_of(bytes([number]))
        listed.append(Descriptor(media_type=OCI_MANIFEST, digest=digest, size=1, platform=platform))
    index = Index(media_type=DOCKER_INDEX, manifests=tuple(listed))

    assert index.choose(architecture) == (None if expected is None else listed[expected])
    assert not any("unknown" in name for name in index.platforms)


def test_a_configuration_is_read_in_full_and_in_its_shortest_form() -> None:
    settings = {
        "Env": ["PATH=/bin", "A=b=c", "EMPTY="],
        "Labels": {"l": "v"},
    }
    full = parse_config(encoded(CONFIG, config=settings, history=[{"comment": "x"}], variant="v8"))

    assert full.env == {"PATH": "/bin", "A": "b=c", "EMPTY": ""}
    assert (full.labels, full.platform) == ({"l": "v"}, "linux/amd64/v8")
    assert full.raw["history"] == [{"comment": "x"}]
    assert "PATH" not in repr(full)
    for nothing in ({}, {"config": None}, {"config": {}}):
        short = parse_config(encoded(CONFIG, **nothing))
        assert (short.env, short.diff_ids, short.history) == ({}, (DIGEST,), ())
