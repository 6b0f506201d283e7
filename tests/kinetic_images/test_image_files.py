"""Whether an image contains a program, as far as its layers show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from small_images import push_image

from kinetic_images.image_files import has_program
from kinetic_images.registry.registry import Registry
from kinetic_images.testing.registry.server import RegistryServer

REGISTRY = Registry(environ={}, google=lambda: None)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def as_it_is(data: bytes) -> bytes:
    return data


def found(
    server: RegistryServer, files: list[str], damaged: Callable[[bytes], bytes] = as_it_is
) -> bool | None:
    uri = push_image(server.host, REGISTRY, files=files, damaged=damaged)
    repository = REGISTRY.repository(uri)
    return has_program(repository.image("1", "amd64"), repository, "python3")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["bin/python3"], True),
        (["etc/base", "./opt/venv/bin/python3"], True),
        (["usr/bin/python2", "python3/a", "usr/bin/python3.11"], False),
        ([], False),
    ],
)
def test_a_program_in_any_folder_counts(
    server: RegistryServer, files: list[str], expected: bool
) -> None:
    assert found(server, files) is expected


@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: b"\x28\xb5\x2f\xfd" + data,
        lambda data: data[: len(data) // 2],
        lambda data: data + bytes(33 << 20),
    ],
    ids=["another compression", "damaged", "large"],
)
def test_nothing_is_known_of_a_layer_that_cannot_be_read(
    server: RegistryServer, damaged: Callable[[bytes], bytes]
) -> None:
    assert found(server, ["bin/busybox"], damaged) is None
