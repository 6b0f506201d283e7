"""Whether an image contains a program, as far as its layers show."""

from __future__ import annotations

import bz2
import gzip
import subprocess
import sys
import tarfile
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from small_images import push_image

from kinetic_images.image_files import has_program
from kinetic_images.registry.registry import Registry
from kinetic_servers.registry.server import RegistryServer

REGISTRY = Registry(environ={}, google=lambda: None)
LOOK = """
import sys
from resource import RUSAGE_SELF, getrusage
from kinetic_images.image_files import has_program
from kinetic_images.registry.registry import Registry

repository = Registry(environ={}, google=lambda: None).repository(sys.argv[1])
before = getrusage(RUSAGE_SELF).ru_maxrss
for tag in sys.argv[2:]:
    print(has_program(repository.image(tag, "amd64"), repository, "python3"))
print(getrusage(RUSAGE_SELF).ru_maxrss - before)
"""


def found(
    server: RegistryServer,
    files: list[str],
    damaged: Callable[[bytes], bytes] = lambda data: data,
    **options: Any,
) -> bool | None:
    uri = push_image(server.host, REGISTRY, files=files, damaged=damaged)
    repository = REGISTRY.repository(uri)
    return has_program(repository.image("1", "amd64"), repository, "python3", **options)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["bin/python3"], True),
        (["etc/base", "./opt/venv/bin/python3"], True),
        (["etc/base", f"opt/{'x' * 300}/bin/python3"], True),
        (["usr/bin/python2", "python3/a", "usr/bin/python3.11", "a/python3/" + "x" * 300], False),
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


def test_nothing_is_known_of_layers_that_take_too_much_time(server: RegistryServer) -> None:
    many = gzip.compress(b"") * 10

    assert found(server, [], lambda data: many + data) is False
    assert found(server, [], lambda data: many + data, clock=count().__next__) is None


def with_header(compress: Callable[[bytes], bytes]) -> bytes:
    """Return a compressed tar file whose extended header has 100 MB."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 100 << 20
    return compress(header.tobuf()) + compress(bytes(1 << 20)) * 100


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "header": (lambda: with_header(gzip.compress), "None"),
    "compression": (lambda: with_header(bz2.compress), "None"),
    "entries": (
        lambda: gzip.compress(tarfile.TarInfo("x").tobuf() * 40_000 + bytes(512), 1),
        "False",
    ),
}


def test_the_memory_for_a_layer_does_not_depend_on_its_content(server: RegistryServer) -> None:
    for tag, (layer, _) in HOSTILE.items():
        push_image(server.host, REGISTRY, tag=tag, files=[], damaged=lambda _, layer=layer: layer())
    command = [sys.executable, "-c", LOOK, f"{server.host}/base", *HOSTILE]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    *answers, more_memory = done.stdout.split()
    assert answers == [expected for _, expected in HOSTILE.values()]
    assert int(more_memory) < 30_000
