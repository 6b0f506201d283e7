"""Data sets of the Hub: the user's own `datasets` library against a hub that speaks the Hub's protocol."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

import kinetic
from kinetic_payload.errors import DataError
from kinetic_runner.data import huggingface
from kinetic_servers.http.messages import Answer, Call, Service, json_answer
from kinetic_servers.http.server import HttpServer

pytestmark = pytest.mark.slow  # each load imports the library in a process of its own
COMMIT, OLDER = "a" * 40, "b" * 40
TOKEN = "hf_reader"


def rows(*values: int) -> bytes:
    return b"".join(json.dumps({"n": n, "text": f"row {n}"}).encode() + b"\n" for n in values)


CARD = b"""---
configs:
- config_name: small
  default: true
  data_files:
  - {split: train, path: small/train.jsonl}
  - {split: test, path: small/test.jsonl}
- config_name: large
  data_files:
  - {split: train, path: large/train.jsonl}
---
# Digits
"""
DIGITS = {
    "README.md": CARD,
    "small/train.jsonl": rows(1, 2, 3),
    "small/test.jsonl": rows(4),
    "large/train.jsonl": rows(*range(100)),
}
PLAIN = {"train.jsonl": rows(7, 8)}


class Hub(HttpServer, Service):
    """Data sets by name and commit, with the API, the files and the errors of the Hub."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: dict[str, dict[str, dict[str, bytes]]] = {
            "org/digits": {COMMIT: DIGITS, OLDER: {**DIGITS, "small/train.jsonl": rows(0)}},
            "org/plain": {COMMIT: PLAIN},
            "org/gated": {COMMIT: PLAIN},
            "org/script": {COMMIT: {"script.py": b"import datasets\n"}},
        }
        self.tokens: list[str | None] = []

    def service(self, folder: Path) -> Service:
        return self

    async def perform(self, call: Call) -> Answer:
        path = unquote(call.path)
        self.tokens.append(call.headers.get("authorization"))
        if "/old-name" in path:  # A set without an organisation that was moved into one.
            return Answer(307, headers={"Location": path.replace("/old-name", "/org/plain")})
        for name, commits in self.sets.items():
            api, files = f"/api/datasets/{name}", f"/datasets/{name}/resolve/"
            if path == api or path.startswith((f"{api}/", files)):
                if name == "org/gated" and self.tokens[-1] != f"Bearer {TOKEN}":
                    return self.refused(401 if self.tokens[-1] is None else 403, "GatedRepo")
                if path.startswith(files):
                    return self.file(commits, path.removeprefix(files))
                return await self.api(call, name, commits, path.removeprefix(api))
        if path.startswith(("/api/datasets/", "/datasets/")):
            return self.refused(401, "RepoNotFound")
        return Answer(404)

    def file(self, commits: dict[str, dict[str, bytes]], rest: str) -> Answer:
        revision, _, name = rest.partition("/")
        commit = self.commit(commits, revision)
        if commit is None:
            return self.refused(404, "RevisionNotFound")
        headers = {"X-Repo-Commit": commit}
        data = commits[commit].get(name)
        if data is None:
            return self.refused(404, "EntryNotFound", headers)
        etag = hashlib.sha1(data).hexdigest()
        return Answer(200, data, {**headers, "ETag": f'"{etag}"'})

    async def api(
        self, call: Call, name: str, commits: dict[str, dict[str, bytes]], rest: str
    ) -> Answer:
        parts = rest.strip("/").split("/")
        revision = parts[1] if len(parts) > 1 else "main"
        commit = self.commit(commits, revision)
        if commit is None:
            return self.refused(404, "RevisionNotFound")
        files = commits[commit]
        if parts[0] in ("", "revision"):
            siblings = [{"rfilename": one} for one in files]
            found = {"id": name, "sha": commit, "private": False, "tags": [], "siblings": siblings}
            return json_answer({**found, "lastModified": "2026-01-01T00:00:00.000Z"})
        if parts[0] == "paths-info":
            sent = (await call.read()).decode()
            wanted = json.loads(sent)["paths"] if sent[:1] == "{" else parse_qs(sent)["paths"]
            entries = [self.entry(files, one) for one in wanted]
            return json_answer([one for one in entries if one])
        assert parts[0] == "tree", rest
        below = "".join(f"{part}/" for part in parts[2:])
        deep = call.arg("recursive").lower() in ("true", "1")
        names = {one for one in files if one.startswith(below)}
        folders = {
            below + one[len(below) :].split("/")[0] for one in names if "/" in one[len(below) :]
        }
        if not deep:
            names = {one for one in names if "/" not in one[len(below) :]}
        if below and not names | folders:
            return self.refused(404, "EntryNotFound")
        return json_answer([self.entry(files, one) for one in sorted(names | folders)])

    def entry(self, files: dict[str, bytes], name: str) -> dict[str, object] | None:
        if name in files:
            data = files[name]
            oid = hashlib.sha1(data).hexdigest()
            return {"type": "file", "oid": oid, "size": len(data), "path": name}
        if any(one.startswith(f"{name}/") for one in files):
            return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
        return None

    def commit(self, commits: dict[str, dict[str, bytes]], revision: str) -> str | None:
        return {"main": COMMIT, "v1": OLDER}.get(
            revision, revision if revision in commits else None
        )

    def refused(self, status: int, code: str, headers: dict[str, str] | None = None) -> Answer:
        error = {"X-Error-Code": code, "X-Error-Message": code, **(headers or {})}
        return json_answer({"error": code}, status=status, headers=error)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    for name in list(os.environ):  # noqa: TID251
        if name.startswith(("HF_", "HUGGING")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        monkeypatch.setenv(name, "100")
    with Hub() as serving:
        monkeypatch.setenv("HF_ENDPOINT", serving.endpoint)
        yield serving


def read(folder: Path) -> dict[str, list[int]]:
    """Return the rows of a folder of `save_to_disk` by split; '' if it is one split."""
    import datasets

    loaded = datasets.load_from_disk(str(folder))
    if isinstance(loaded, datasets.DatasetDict):
        return {str(split): list(found["n"]) for split, found in loaded.items()}
    return {"": list(loaded["n"])}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hf://org/digits", {"train": [1, 2, 3], "test": [4]}),
        ("hf://org/digits?split=train[:50%]&config_name=large", {"": list(range(50))}),
        ("hf://org/digits?revision=v1&split=train", {"": [0]}),
        ("hf://old-name", {"train": [7, 8]}),
    ],
)
def test_a_set_arrives_as_a_folder_of_save_to_disk(
    hub: Hub, tmp_path: Path, uri: str, expected: dict[str, list[int]]
) -> None:
    lines: list[str] = []

    huggingface.load(uri, tmp_path / "in" / "set", print_line=lines.append)

    assert read(tmp_path / "in" / "set") == expected
    assert os.listdir(tmp_path / "in") == ["set"]
    assert lines[0] == f"loading {uri}"
    assert lines[1].startswith(f"loaded {uri}: ")
    assert "rows" in lines[1]


@pytest.mark.parametrize(
    ("uri", "words", "advice"),
    [
        ("hf://org/dgits", "doesn't exist on the Hub or cannot be accessed", "HF_TOKEN"),
        ("hf://org/digits?config_name=smal", "'small'", ""),
        ("hf://org/digits?split=trian", 'Unknown split "trian"', ""),
        ("hf://org/digits?revision=v9", "v9", "revision"),
    ],
)
def test_a_missing_set_is_an_error_with_the_message_of_the_library(
    hub: Hub, tmp_path: Path, uri: str, words: str, advice: str
) -> None:
    with pytest.raises(DataError) as raised:
        huggingface.load(uri, tmp_path / "in" / "set", print_line=lambda _: None)

    assert words in raised.value.message
    assert advice in (raised.value.hint or "")
    assert "Traceback" not in raised.value.message
    assert os.listdir(tmp_path / "in") == []


def test_a_gated_set_is_opened_by_a_captured_token_with_access_only(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    with pytest.raises(DataError, match="ask for access"):
        huggingface.load("hf://org/gated", tmp_path / "set", print_line=lambda _: None)

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    huggingface.load("hf://org/gated?split=train", tmp_path / "set", print_line=lambda _: None)

    assert read(tmp_path / "set") == {"": [7, 8]}


def test_a_token_file_of_the_machine_is_not_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".cache" / "huggingface").mkdir(parents=True)
    (home / ".cache" / "huggingface" / "token").write_text(TOKEN)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("HF_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    with pytest.raises(DataError, match="gated") as raised:
        huggingface.load("hf://org/gated", tmp_path / "set", print_line=lambda _: None)

    assert "capture_env_vars=['HF_TOKEN']" in (raised.value.hint or "")
    assert set(hub.tokens) == {None}


def test_a_captive_portal_is_an_error_and_its_page_is_never_a_row(hub: Hub, tmp_path: Path) -> None:
    for method, path, status, page in (
        ("GET", "/api/*", 200, "<html><title>Sign in to the hotel</title></html>"),
        ("HEAD", "/datasets/*", 401, "<html></html>"),
        ("GET", "/datasets/*", 200, ""),
    ):
        hub.faults.clear()
        hub.faults.add(method=method, path=path, status=status, page=page)
        with pytest.raises(DataError, match="could not load it"):
            huggingface.load("hf://org/plain", tmp_path / "in" / "set", print_line=lambda _: None)
        assert os.listdir(tmp_path / "in") == []

    hub.faults.clear()
    huggingface.load("hf://org/plain", tmp_path / "in" / "set", print_line=lambda _: None)
    assert read(tmp_path / "in" / "set") == {"train": [7, 8]}


def test_a_set_with_its_own_code_is_refused(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot run code of its own: datasets 5") as raised:
        huggingface.load(
            "hf://org/script", tmp_path / "set", trusts=True, print_line=lambda _: None
        )
    assert "datasets<4" in (raised.value.hint or "")

    with pytest.raises(DataError, match="Dataset scripts are no longer supported"):
        huggingface.load("hf://org/script", tmp_path / "set", print_line=lambda _: None)


def test_a_project_with_a_folder_called_datasets_does_not_hide_the_library(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project" / "datasets").mkdir(parents=True)
    (tmp_path / "project" / "datasets" / "__init__.py").write_text("raise SystemExit('mine')")
    (tmp_path / "project" / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.syspath_prepend(str(tmp_path / "project"))

    huggingface.load("hf://org/plain", tmp_path / "set", print_line=lambda _: None)

    sys.path.remove(str(tmp_path / "project"))
    assert read(tmp_path / "set") == {"train": [7, 8]}


def test_a_transient_failure_of_the_hub_is_retried_and_the_log_has_no_progress_bars(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.faults.add(status=503, times=1)

    huggingface.load("hf://org/digits", tmp_path / "set")

    out, err = capfd.readouterr()
    assert "\r" not in out + err
    assert "it/s" not in out + err
    assert "examples" not in out + err
    assert "[kinetic] loaded hf://org/digits: 3 rows in train, 1 rows in test" in err


ROWS = """
import kinetic

@kinetic.run(accelerator="cpu", backend="local", capture_env_vars=["HF_*"])
def rows(x, data):
    import datasets

    return x + sum(datasets.load_from_disk(data)["n"])
"""


def test_one_worker_of_a_batch_loads_a_set_for_all(hub: Hub, desk: Any) -> None:
    desk.set(KINETIC_LOCAL_JOBS="2", HF_TOKEN=TOKEN)
    rows = desk.module("rows", ROWS).rows
    data = kinetic.Data("hf://org/gated?split=train")

    batch = rows.run_async_map(range(5), common={"data": data}, inputs_per_pod=2)
    values = batch.results(cleanup=False, timeout=300)
    logs = [job.logs() for job in batch.jobs]

    assert values == [15, 16, 17, 18, 19]
    assert [index for index, log in enumerate(logs) if "loading hf://" in log] == [0]
    assert TOKEN not in "".join(logs)
    batch.cleanup()
    assert desk.of_jobs() == []
