"""Kubeconfigs that are malformed or have invalid values; tests/cluster connects with valid ones."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.kubeconfig import access_of
from kinetic_k8s.errors import NotAuthenticatedError, UnknownContextError
from kinetic_payload.errors import KineticError

from .test_connection import write


@pytest.mark.parametrize(
    ("part", "fields", "words"),
    [
        ("cluster", {"server": "api.example.com:443"}, "'api.example.com:443', which is no address"),
        ("cluster", {"server": "https:///api"}, "'https:///api', which is no address"),
        ("cluster", {"server": "https://10.0.0.1:65536"}, "which is no address"),
        ("cluster", {"proxy-url": "http://127.0.0.1:1"}, "proxy"),
        ("cluster", {"certificate-authority-data": "abc"}, "Cannot read the certificates"),
        ("cluster", {"certificate-authority-data": "aGVsbG8="}, "Cannot read the certificates"),
        ("user", {"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="}, "client certificate"),
        ("user", {"as": "a\nb"}, "cannot be sent"),
        ("user", {"as-groups": ["\ud800"]}, "cannot be sent"),
        ("user", {"token": 12}, "`users\\[0].user.token` is no text"),
    ],
)  # fmt: skip
def test_an_invalid_value_of_a_kubeconfig_is_reported_at_once(
    tmp_path: Path, part: str, fields: dict[str, Any], words: str
) -> None:
    path = Path(write(tmp_path, "https://127.0.0.1:1"))
    config = json.loads(path.read_text())
    config[f"{part}s"][0][part].update(fields)
    path.write_text(json.dumps(config))

    with pytest.raises(KineticError, match=words):
        ApiServer(access_of(kubeconfig=str(path)), limit=0.1).get("Job", "j")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 500, "maximum recursion depth"),
        ("users:\n- {user: {token: hunter2: 5}}", "it is no YAML in line 2"),
        ("- a", "it is no object"),
        ("contexts: -1", "`contexts` is no list"),
        ("current-context: 5", "`current-context` is no text"),
        ("clusters: [{cluster: {insecure-skip-tls-verify: 'yes'}}]",
         "`clusters[0].cluster.insecure-skip-tls-verify` is no boolean"),
        ("users: [{user: {token: !!binary aHVudGVyMg==}}]", "`users[0].user.token` is no text"),
        ("users: [{user: {exec: {env: [a]}}}]", "`users[0].user.exec.env[0]` is no object"),
        ("users: [{user: {as-user-extra: {a: b}}}]", "`users[0].user.as-user-extra.a` is no list"),
    ],
)  # fmt: skip
def test_a_malformed_kubeconfig_is_named_with_the_field_and_without_its_secrets(
    tmp_path: Path, text: str, words: str
) -> None:
    (path := tmp_path / "config").write_text(text)

    with pytest.raises(UnknownContextError) as caught:
        access_of(kubeconfig=str(path))

    assert f"Cannot read the kubeconfig {path}: {words}" in caught.value.message
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("5", "`status` is no object"),
        ('{"token": 5}', "`status.token` is no text"),
        ('{"token": "t", "expirationTimestamp": "0001-01-01T00:00:00+14:00"}', "`expirationTimestamp`"),
        ('{"token": "a\\nb"}', "characters that cannot be sent"),
        ("[" * 2000, "malformed"),
    ],
)  # fmt: skip
def test_an_invalid_response_of_a_plugin_is_reported(
    tmp_path: Path, status: str, words: str
) -> None:
    answer = f'{{"apiVersion": "v1", "kind": "ExecCredential", "status": {status}}}'
    plugin = {"apiVersion": "v1", "command": "printf", "args": ["%s", answer]}
    access = access_of(kubeconfig=write(tmp_path, "https://127.0.0.1:1", user={"exec": plugin}))

    with pytest.raises(NotAuthenticatedError, match=words):
        access.credentials()
