"""Secrets and ConfigMaps as they are sent."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import kubernetes_validate
import pytest

from kinetic_k8s.manifests.secrets import (
    LARGEST,
    environment_secret,
    key_in,
    key_secret,
    runner_config_map,
)
from kinetic_payload.errors import InvalidRequestError

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "kn-f-0a1b2c3", "uid": "u1", "labels": {"app": "kinetic"}},
}
DIGEST = "0123456789abcdef" * 4


def test_captured_values_belong_to_their_job_and_are_kept_byte_for_byte() -> None:
    secret = environment_secret(JOB, {"TOKEN": "a\nb", "Unicode": "ü"})

    kubernetes_validate.validate(secret, "1.34", strict=True)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert {name: b64decode(value).decode() for name, value in secret["data"].items()} == {
        "TOKEN": "a\nb",
        "Unicode": "ü",
    }


@pytest.mark.parametrize("name", ["", "A B", "ÄRGER"])
def test_a_name_that_no_secret_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be captured"):
        environment_secret(JOB, {name: "x"})


def test_a_variable_too_long_for_linux_is_refused() -> None:
    longest = "x" * (128 * 1024 - 1 - len("TOKEN="))
    environment_secret(JOB, {"TOKEN": longest})

    with pytest.raises(InvalidRequestError, match="'TOKEN' has 131,072 bytes"):
        environment_secret(JOB, {"TOKEN": f"{longest}x"})


def test_a_key_is_read_back_unchanged() -> None:
    assert key_in(key_secret(b"\x00\xff" * 16)) == b"\x00\xff" * 16
    for foreign in ({}, {"data": {}}, {"data": {"key": "%%"}}, {"data": {"key": "bm90IGhleA=="}}):
        with pytest.raises(InvalidRequestError, match="no key in hexadecimal"):
            key_in(foreign)


def test_a_runner_too_large_for_an_object_is_refused_with_its_size() -> None:
    config_map = runner_config_map(DIGEST, "remote_runner.py", b"\x00" * 1000, JOB)

    kubernetes_validate.validate(config_map, "1.34", strict=True)
    assert config_map["metadata"]["name"] == f"kn-runner-{DIGEST[:40]}"
    with pytest.raises(InvalidRequestError, match="1,048,593 bytes"):
        runner_config_map(DIGEST, "remote_runner.py", b"\x00" * (LARGEST + 1), JOB)
