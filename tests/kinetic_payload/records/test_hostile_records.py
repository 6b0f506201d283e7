"""Ten thousand hostile records: each is decoded into its types, or refused with a short message."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from kinetic_payload.calls.call import CallHeader, read_header
from kinetic_payload.data.marker import Listed, Marker, encode_marker, parse_marker
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import KineticError, RecordError, SignatureError
from kinetic_payload.limits import read_record
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.claim import Claim, Lease
from kinetic_payload.records.decode import decode
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Pickled
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import signed, verify
from kinetic_payload.testing import MemoryStore

CASES = 1000
"""For each way to read; ten of them."""
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
KEY = bytes(32)

HANDLE = JobRecord(
    job_id="job", backend="local", project="local", cluster_name="kinetic-cluster", zone="us-central1-a",
    namespace="default", bucket_name="bucket", k8s_name="kn-train-abc1234", image_uri="python",
    accelerator="cpu", func_name="train", display_name="train on cpu",
    created_at="2026-04-17T15:30:12.000+00:00", payload_digest=DIGEST, timeout=3600.0,
    captured_env=("WANDB_API_KEY",), labels={"team": "vision"},
)  # fmt: skip
PICKLED = Pickled(size=40, digest=DIGEST, inline="gASVHAAAAA==")
ERROR = ErrorInfo(
    type="ValueError", message="négatif \udc80", traceback="Traceback", notes=("note",), pickled=PICKLED
)  # fmt: skip
HOST = HostOutcome(
    job_id="job", attempt=2, host=1, succeeded=False, reason="exception", phase="call", exit_code=1,
    error=ERROR, phases={"fetch": 0.25},
)  # fmt: skip
CLAIM = Claim(job_id="job", attempt=1, host=0, hostname="h", pid=4, claimed_at=1.5)
LEASE = Lease(job_id="job", holder="laptop:~/.kinetic", seconds=30.0)
OUTCOME = Outcome(job_id="job", status="failed", attempt=1, host=0, digest=DIGEST)
GROUP = GroupManifest(
    group_id="grp-1", name=None, tags={"a": "b"}, created_at="2026", total_expected=3, accelerator="cpu",
    func_name="f",
)  # fmt: skip
LISTED = (Listed("packs/00000.zip", 10), Listed("large/00000", 5, "p", 0o644, DIGEST))
MARKER = Marker(digest=DIGEST, objects=LISTED, mounted=False, written_at=1.0)
MOUNTED = dataclasses.replace(
    MARKER, mounted=True, objects=(Listed("files/a", 1),), executables=("a",)
)
DATA = DataRef(key="d0", kind="local", source="./d", is_dir=True, name="d", digest=DIGEST)
HEADER = CallHeader(
    python="3.11.7", cloudpickle="3.1", kinetic="0.1", function="train", module="jobs", main_kind="script",
    main=None, paths=("src",), cwd="", data=(DATA,), context_digest=DIGEST,
)  # fmt: skip


def record(kind: Any) -> Callable[[bytes], object]:
    return lambda data: decode(kind, data, name="gs://bucket/object")


def header(data: bytes) -> CallHeader:
    return read_header(io.BytesIO(data.replace(b"\n", b"") + b"\n"))


WAYS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "handle": (encode(HANDLE), record(JobRecord)),
    "host": (encode(HOST), record(HostOutcome)),
    "claim": (encode(CLAIM), record(Claim)),
    "lease": (encode(LEASE), record(Lease)),
    "outcome": (encode(OUTCOME), record(Outcome)),
    "group": (encode(GROUP), record(GroupManifest)),
    "marker": (encode_marker(MARKER), partial(parse_marker, digest=DIGEST)),
    "mounted": (encode_marker(MOUNTED), partial(parse_marker, digest=DIGEST, mounted=True)),
    "header": (HEADER.encode(), header),
    "signature": (
        signed(encode(HANDLE), KEY, name="job/handle.json"),
        partial(verify, key=KEY, name="job/handle.json"),
    ),
}

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1.5, -0.0, float("nan"), float("inf"),
    1e18, 1e300, -1e300, 2**53 + 1, 10**9, 10**18, float("-inf"), "\x1b]0;owned\x07", "\x9b2J", "a\u202eb",
    "", "x", "\0", "\udc80", "\ud83d", "é" * 50, "x" * 100_000, "../../etc/passwd", "failed", "call",
    [], [None], [[]], {}, {"": None}, {"__class__": "x"}, [{}] * 100, "hmac-sha256:0:0", "::", ":", "x" * 5000 + "::", "hmac-sha256:0:\ud800",
)  # fmt: skip
LITERALS: tuple[bytes, ...] = (
    b"", b"null", b"[]", b"{}", b'""', b"0", b"\xff", b"\xef\xbb\xbf{}", b"NaN", b"1e999", b"-",
    b"[" * 5000, b'{"a":' * 5000, b'{"version":' + b"9" * 5000 + b"}", b'{"version": 1e5}',
    b"[" * 700 + b"]" * 700, b'{"version": ' + b"[" * 900 + b"]" * 900 + b"}", b'{"job_id": "a", "job_id": "b"}',
    b'{"version": 99}', b'{"version": -1}', b'{"version": "1"}', b"\0" * 100, b'"\\ud800"',
)  # fmt: skip


def somewhere(rng: random.Random, value: Any) -> tuple[Any, Any]:
    """Return a container within *value*, and a key of it."""
    found = [value]
    for one in found:
        inner = one.values() if isinstance(one, dict) else one
        found += (child for child in inner if isinstance(child, dict | list) and child)
    container = rng.choice(found)
    keys = list(container) if isinstance(container, dict) else range(len(container))
    return container, rng.choice(keys)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return a record with something changed: its values, its shape, or its bytes."""
    if rng.random() < 0.05:
        return rng.choice(LITERALS)
    if rng.random() < 0.7:
        written = json.loads(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            container, key = somewhere(rng, written)
            what = rng.randrange(4)
            if what == 0 and isinstance(container, dict) and len(container) > 1:
                del container[key]
            elif what == 1 and isinstance(container, dict):
                container[rng.choice(("new", "", "version", "digest"))] = deepcopy(
                    rng.choice(VALUES)
                )
            elif what == 2 and isinstance(container, list):
                container.append(deepcopy(rng.choice(VALUES)))
            else:
                container[key] = deepcopy(rng.choice(VALUES))
        return json.dumps(written, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(changed) + 1)
        what = rng.randrange(4)
        if what == 0:
            del changed[at:]
        elif what == 1:
            changed[at : at + rng.randrange(1, 10)] = b""
        elif what == 2:
            changed[at:at] = rng.choice((b"\xff", b'"', b"{", b"}", b"\\", b"\\ud800", b"0", b","))
        else:
            changed[at : at + 1] = rng.randbytes(1)
    return bytes(changed)


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_record_is_decoded_into_its_types_or_refused(way: str) -> None:
    good, read = WAYS[way]
    read(good)
    rng = random.Random(way)
    understood = refused = 0
    for _ in range(CASES):
        data = mutated(rng, good)
        try:
            assert_harmless("", decoded := read(data))
            if isinstance(decoded, Lease):
                assert [type(value) for value in dataclasses.astuple(decoded)] == LEASE_TYPES
            understood += 1
        except (RecordError, SignatureError) as error:
            refused += 1
            assert_in_words(error)
    assert refused > CASES // 5
    assert understood > CASES // 100 or way == "signature"


LEASE_TYPES = [type(value) for value in dataclasses.astuple(LEASE)]


def assert_harmless(field: str, value: object) -> None:
    """Make sure that nothing in *value* can be waited for forever, overflow, or steer a terminal."""
    if isinstance(value, str):
        # Paths of files are what they are; they are printed in errors alone, which escape them.
        assert field in ("name", "path", "executables") or not set("\x1b\x9b\x07\0\u202e") & set(
            value
        ), field
    elif isinstance(value, int | float):
        assert -1e18 <= value <= 1e18, field
        if field in ("hosts", "host", "seconds"):
            assert value <= 4096, field
        if field.endswith("_at"):
            datetime.fromtimestamp(value, UTC)
    elif isinstance(value, dict):
        for key, one in value.items():
            assert_harmless("", key)
            assert_harmless(field, one)
    elif isinstance(value, tuple):
        for one in value:
            assert_harmless(field, one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, CallHeader):
        # Of a call's header the job's own digest is known: nobody else can have written it.
        for one in dataclasses.fields(value):
            assert_harmless(one.name, getattr(value, one.name))


def assert_in_words(error: KineticError) -> None:
    assert error.message
    assert len(str(error)) < 2000, "a message that repeats what it refuses is one more weapon"
    str(error).encode(errors="backslashreplace")


def test_a_changed_record_is_not_signed() -> None:
    good, read = WAYS["signature"]
    signature = json.loads(good)
    rng = random.Random(3)
    for _ in range(CASES):
        data = mutated(rng, good)
        try:
            read(data)
        except SignatureError:
            continue
        # Only what says the very same is still signed. The hint which key it was may be anything.
        changed = json.loads(data)
        scheme, _, mac = signature["signature"].split(":")
        assert changed["signature"].split(":")[::2] == [scheme, mac]
        assert {**changed, "signature": ""} == {**signature, "signature": ""}
    with pytest.raises(SignatureError):
        read(b'{"hosts": 1000, ' + good[1:])  # A field that stands there twice.


def test_unchecked_fields_are_those_of_an_object_or_none() -> None:
    assert fields_of(encode(OUTCOME))["status"] == "failed"
    rng = random.Random(11)
    for data in (*LITERALS, *(mutated(rng, encode(OUTCOME)) for _ in range(CASES))):
        assert isinstance(fields_of(data), dict)


def test_a_record_that_is_too_large_is_not_read() -> None:
    class Counted(MemoryStore):
        most = 0

        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            data = super().read(name, start=start, end=end)
            self.most = max(self.most, len(data))
            return data

    store = Counted()
    for name in ("j/handle.json", "j/lease.json", "j/attempts/1/host-0.claim", "j/outcome.json"):
        store.write(name, b"{" + b" " * (1 << 20) + b"}")
        with pytest.raises(RecordError, match="may have"):
            read_record(store, name)
        assert store.most <= (256 << 10) + 1
    store.write("j/outcome.json", encode(OUTCOME))
    assert read_record(store, "j/outcome.json") == encode(OUTCOME)


@pytest.mark.parametrize("depth", [50, 300, 500, 900, 5000])
def test_a_deeply_nested_signed_record_is_refused(depth: int) -> None:
    nested = b'{"x": ' + b"[" * depth + b"]" * depth + b', "signature": "hmac-sha256:0:0"}'

    with pytest.raises(SignatureError):
        verify(nested, KEY, name="job/handle.json")
