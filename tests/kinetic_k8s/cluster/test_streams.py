from __future__ import annotations

import io

import pytest
from urllib3 import HTTPResponse

from kinetic_k8s.cluster.streams import Lines
from kinetic_k8s.cluster.translation import Identity, Request

REQUEST = Request(verb="get", resource="pods/log", kind="Pod")
WHERE = Identity(server="https://10.0.0.1", namespace="default")
CHUNK = 65536


def lines_of(body: bytes) -> list[str]:
    response = HTTPResponse(body=io.BytesIO(body), preload_content=False)
    return list(Lines(response, REQUEST, WHERE))


@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 100 * CHUNK + 7])
def test_a_line_of_any_length_arrives_whole(length: int) -> None:
    expected = ["x" * length, "", "é" * 3, "y" * length, "the end"]

    assert lines_of("\n".join(expected).encode()) == expected
    assert lines_of("".join(f"{line}\n" for line in expected).encode()) == expected
    assert lines_of(b"") == []
