from __future__ import annotations

import json

import pytest

from kinetic_images.errors import (
    ImageNotFoundError,
    InvalidImageError,
    InvalidReferenceError,
    RegistryError,
)
from kinetic_images.registry.oci import OCI_CONFIG, OCI_MANIFEST, Descriptor, Manifest, digest_of
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import Repository
from kinetic_servers.registry import RegistryServer
from kinetic_servers.registry.images import push
from kinetic_servers.registry.storage import StoredManifest

OTHER = digest_of(b"other")


def test_a_name_selects_the_repository_and_its_tag_is_ignored(registry: Registry) -> None:
    repository = registry.repository(f"ghcr.io/kn/image:other@{OTHER}")
    assert str(repository) == "ghcr.io/kn/image"


@pytest.mark.parametrize("header", [None, "sha256:short", "x", "sha512:" + "0" * 128])
def test_without_a_usable_digest_header_the_manifest_is_hashed(
    server: RegistryServer, repository: Repository, header: str | None
) -> None:
    digest = server.add_image("kn/image", "1")
    server.faults.add(path="*/manifests/*", times=None, headers={"Docker-Content-Digest": header})

    assert repository.digest("1") == digest
    assert repository.digest("2") is None
    assert [each.method for each in server.requests] == ["HEAD", "GET", "HEAD"]


def test_a_missing_image_is_named_and_one_of_another_architecture_with_those_that_exist(
    server: RegistryServer, repository: Repository
) -> None:
    server.add_image("kn/image", "single")
    server.add_image("kn/image", "both", architectures=("amd64", "s390x"))

    with pytest.raises(ImageNotFoundError, match=r"not for linux/arm64, but for: linux/amd64\."):
        repository.image("single", "arm64")
    with pytest.raises(ImageNotFoundError, match=r"but for: linux/amd64, linux/s390x\."):
        repository.image("both", "arm64")
    with pytest.raises(ImageNotFoundError, match=rf"There is no image {server.host}/kn/image:1\."):
        repository.image("1", "amd64")
    with pytest.raises(ImageNotFoundError, match=f"kn/image@{OTHER}"):
        repository.image(OTHER, "amd64")


@pytest.mark.parametrize("odd", ["", "a/b", "../manifests/1", "a?b", "a b", "sha256:1"])
def test_an_invalid_tag_is_not_sent(
    server: RegistryServer, repository: Repository, odd: str
) -> None:
    with pytest.raises(InvalidReferenceError):
        repository.digest(odd)
    with pytest.raises(InvalidReferenceError):
        repository.blob(odd)
    assert len(server.requests) == 0


def test_bytes_with_another_digest_are_refused(
    server: RegistryServer, repository: Repository
) -> None:
    digest = server.add_image("kn/image", "1")
    blob = server.storage.add_blob("kn/image", b"content")

    server.faults.add(page=b"{}", times=2)
    for read in (lambda: repository.manifest(digest), lambda: repository.blob(blob)):
        with pytest.raises(InvalidImageError, match=f"have the digest {digest_of(b'{}')}"):
            read()
    server.faults.add(method="GET", headers={"Docker-Content-Digest": OTHER})
    with pytest.raises(InvalidImageError, match=OTHER):
        repository.manifest("1")
    server.faults.add(method="PUT", status=201, headers={"Docker-Content-Digest": OTHER}, times=2)
    for write in (
        lambda: repository.put_manifest("2", b"{}", OCI_MANIFEST),
        lambda: push(repository, b"content"),
    ):
        with pytest.raises(InvalidImageError, match="stored it as"):
            write()


def test_a_malformed_image_is_named(server: RegistryServer, repository: Repository) -> None:
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [OTHER]}}
    for tag, content in (("broken", b"{"), ("layers", json.dumps(config).encode())):
        blob = server.storage.add_blob("kn/image", content)
        described = Descriptor(media_type=OCI_CONFIG, digest=blob, size=len(content))
        manifest = Manifest(config=described, layers=()).render()
        server.storage.put_manifest("kn/image", tag, StoredManifest(OCI_MANIFEST, manifest))

    with pytest.raises(InvalidImageError, match=r"kn/image, broken: The configuration"):
        repository.image("broken", "amd64")
    with pytest.raises(InvalidImageError, match=r"0 layers, and its configuration names 1"):
        repository.image("layers", "amd64")


def test_a_page_in_place_of_an_image_does_not_mean_that_it_is_missing(
    server: RegistryServer, repository: Repository
) -> None:
    server.add_image("kn/image", "1")
    page = {"Content-Type": "text/html", "Docker-Distribution-Api-Version": None}
    missing = {**page, "Docker-Content-Digest": None}
    server.faults.add(times=2, page=b"<html>Log in</html>", headers=missing)
    with pytest.raises(RegistryError, match="text/html, not a manifest"):
        repository.digest("1")

    for ask in (lambda: repository.digest("2"), lambda: repository.has_blob(OTHER)):
        server.faults.add(status=404, headers=missing, page=b"<html>Log in</html>", times=2)
        with pytest.raises(RegistryError, match="not that of a registry") as caught:
            ask()
        assert not isinstance(caught.value, ImageNotFoundError)


def test_a_registry_may_show_only_in_the_body_that_it_is_one(
    server: RegistryServer, repository: Repository
) -> None:
    plain = {"Content-Type": "text/plain", "Docker-Distribution-Api-Version": None}
    server.faults.add(times=None, headers=plain)

    assert repository.digest("1") is None
    assert not repository.has_blob(OTHER)


def test_a_blob_that_is_too_large_for_memory_is_refused(
    server: RegistryServer, repository: Repository
) -> None:
    blob = server.storage.add_blob("kn/image", bytes(1001))

    assert len(repository.blob(blob, most=1001)) == 1001
    with pytest.raises(RegistryError, match="more than 1000 bytes"):
        repository.blob(blob, most=1000)


def test_a_blob_of_another_registry_or_without_mounts_is_not_mounted(registry: Registry) -> None:
    with RegistryServer(mounts=False) as server:
        blob = server.storage.add_blob("kn/base", b"content")
        target = registry.repository(f"{server.host}/kn/image")

        assert not target.mount(blob, registry.repository("other.invalid/kn/base"))
        assert len(server.requests) == 0
        assert not target.mount(blob, registry.repository(f"{server.host}/kn/base"))
        assert server.storage.uploads == {}
