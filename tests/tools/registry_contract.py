"""`RegistryContract`: tests that every registry passes, the server for tests and real ones."""

from __future__ import annotations

import io
import secrets
from typing import Any

import urllib3

from kinetic_images.errors import ImageNotFoundError, InvalidImageError, RegistryError
from kinetic_images.registry.oci import (
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    Platform,
    digest_of,
)
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import Repository
from kinetic_servers.registry.images import push, push_image

_ABSENT = digest_of(b"absent")


class RegistryContract:
    """Tests of a registry. Subclass it and define `host`; pytest runs the tests."""

    def host(self) -> str:
        """Return the address of a running registry that everybody may write to: `127.0.0.1:PORT`."""
        raise NotImplementedError

    def repository(self) -> Repository:
        """Return a new repository."""
        return Registry(environ={}).repository(f"{self.host()}/kn/t-{secrets.token_hex(4)}")

    def ask(self, method: str, path: str, **more: Any) -> urllib3.BaseHTTPResponse:
        """Send one request; *path* may be an address."""
        url = path if path.startswith("http") else f"http://{self.host()}{path}"
        return urllib3.request(method, url, retries=False, redirect=False, **more)

    def begin(self, repository: Repository) -> str:
        """Begin an upload, and return its address."""
        answer = self.ask("POST", f"/v2/{repository.reference.path}/blobs/uploads/")
        assert answer.status == 202
        return answer.headers["Location"]

    def test_whether_pushes_are_accepted_is_checked_without_a_trace(self) -> None:
        repository = self.repository()
        repository.check_push()

        assert repository.digest("1") is None

    def test_a_pushed_image_is_found_and_read(self) -> None:
        for docker in (False, True):
            repository = self.repository()
            assert repository.digest("1") is None
            digest = push_image(repository, "1", docker=docker)

            image = repository.image("1", "amd64")
            assert repository.digest("1") == repository.digest(digest) == image.digest == digest
            assert image.config.env == {"PATH": "/bin", "A": "b=c"}
            (layer,) = image.manifest.layers
            with repository.open_blob(layer.digest, layer.size) as file:
                assert digest_of(file.read()) == layer.digest

    def test_an_index_leads_to_the_image_of_each_architecture(self) -> None:
        repository = self.repository()
        digests = {name: push_image(repository, name, name) for name in ("amd64", "arm64")}
        sizes = {name: len((repository.manifest(name) or _none()).data) for name in digests}
        index = Index(
            manifests=tuple(
                Descriptor(
                    media_type=OCI_MANIFEST,
                    digest=digest,
                    size=sizes[name],
                    platform=Platform(architecture=name, os="linux"),
                )
                for name, digest in digests.items()
            )
        )
        whole = repository.put_manifest("both", index.render(), OCI_INDEX)

        assert repository.digest("both") == whole
        for name, digest in digests.items():
            image = repository.image("both", name)
            assert image.digest == digest
            assert image.config.architecture == name

    def test_a_tag_moves_and_its_digests_stay(self) -> None:
        repository = self.repository()
        first = push_image(repository, "1", "amd64")
        second = push_image(repository, "1", "arm64")

        assert repository.digest("1") == second != first
        assert repository.digest(first) == first

    def test_blobs_are_there_once_they_are_uploaded(self) -> None:
        repository, advances = self.repository(), list[int]()
        data = secrets.token_bytes(300_000)
        assert not repository.has_blob(digest_of(data))

        push(repository, data, advances)
        push(repository, b"")

        assert repository.has_blob(digest_of(data))
        assert repository.has_blob(digest_of(b""))
        assert repository.blob(digest_of(data)) == data
        assert sum(advances) == len(data)

    def test_a_blob_is_mounted_from_where_it_is(self) -> None:
        source, target = self.repository(), self.repository()
        digest = push(source, b"mounted")

        assert target.mount(digest, source)
        assert target.blob(digest) == b"mounted"
        assert not target.mount(_ABSENT, source)

    def test_missing_objects_are_not_found(self) -> None:
        repository = self.repository()
        for wanted in ("1", _ABSENT):
            assert repository.digest(wanted) is None
            assert repository.manifest(wanted) is None
        assert not repository.has_blob(_ABSENT)
        for fails in (
            lambda: repository.image("1", "amd64"),
            lambda: repository.blob(_ABSENT),
            lambda: repository.open_blob(_ABSENT, 1),
        ):
            assert isinstance(_raised(fails), ImageNotFoundError)

    def test_content_with_another_digest_is_refused(self) -> None:
        repository = self.repository()

        def upload() -> None:
            repository.upload(_ABSENT, 5, lambda: io.BytesIO(b"other"), lambda _: None)

        error = _raised(upload)
        assert isinstance(error, RegistryError)
        assert "DIGEST_INVALID" in str(error)
        assert not repository.has_blob(digest_of(b"other"))

    def test_a_manifest_of_missing_blobs_is_refused(self) -> None:
        repository = self.repository()
        absent = Descriptor(media_type=OCI_CONFIG, digest=_ABSENT, size=1)
        data = Manifest(config=absent, layers=()).render()

        error = _raised(lambda: repository.put_manifest("1", data, OCI_MANIFEST))
        assert isinstance(error, RegistryError)
        assert "BLOB_UNKNOWN" in str(error)
        assert isinstance(
            _raised(lambda: repository.put_manifest(_ABSENT, data, OCI_MANIFEST)), InvalidImageError
        )
        assert repository.digest("1") is None

    def test_a_manifest_of_a_type_that_is_not_accepted_is_absent(self) -> None:
        repository = self.repository()
        push_image(repository, "1")
        path = f"/v2/{repository.reference.path}/manifests/1"

        assert self.ask("HEAD", path).status == 404
        assert self.ask("HEAD", path, headers={"Accept": DOCKER_MANIFEST}).status == 404
        assert self.ask("HEAD", path, headers={"Accept": OCI_MANIFEST}).status == 200
        several = urllib3.HTTPHeaderDict([("Accept", OCI_MANIFEST), ("Accept", DOCKER_MANIFEST)])
        assert self.ask("HEAD", path, headers=several).status == 200

    def test_a_cancelled_upload_is_gone(self) -> None:
        location = self.begin(self.repository())

        assert self.ask("DELETE", location).status == 204
        again = self.ask("PUT", f"{location}&digest={digest_of(b'')}")
        assert (again.status, _codes(again)) == (404, ["BLOB_UPLOAD_UNKNOWN"])

    def test_a_part_of_a_blob_is_read(self) -> None:
        repository = self.repository()
        path = f"/v2/{repository.reference.path}/blobs/{push(repository, b'0123456789')}"

        part = self.ask("GET", path, headers={"Range": "bytes=7-"})
        assert (part.status, part.data) == (206, b"789")
        assert part.headers["Content-Range"] == "bytes 7-9/10"
        # Debian's registry announces a body that it does not send.
        beyond = self.ask("GET", path, headers={"Range": "bytes=10-"}, preload_content=False)
        assert beyond.status == 416
        beyond.close()


def _none() -> Any:
    raise AssertionError("it is not there")


def _raised(call: Any) -> Exception | None:
    try:
        call()
    except RegistryError as error:
        return error
    return None


def _codes(answer: urllib3.BaseHTTPResponse) -> list[str]:
    return [each["code"] for each in answer.json()["errors"]]
