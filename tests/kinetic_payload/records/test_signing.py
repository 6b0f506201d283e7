"""Signatures: a signed record is accepted, and any other content of the bucket is refused."""

from __future__ import annotations

import json

import pytest

from kinetic_payload.errors import SignatureError
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import key_id, signed, verify

KEY = bytes(range(32))
OTHER = bytes(32)
NAME = "job-1/outcome.json"


def an_outcome() -> bytes:
    return signed(encode(Outcome(job_id="job-1", status="succeeded")), KEY, name=NAME)


def changed(data: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(data), **fields}).encode()


def test_a_signed_record_is_accepted_also_with_other_spaces_and_order() -> None:
    text = Outcome(job_id="j", status="failed", message="ü\ud800\n日本 \x00")
    data = signed(encode(text), KEY, name=NAME)
    verify(data, KEY, name=NAME)
    backwards = dict(reversed(json.loads(data).items()))
    verify(json.dumps(backwards, indent=4).encode(), KEY, name=NAME)


@pytest.mark.parametrize(
    "data",
    [
        changed(an_outcome(), status="failed"),
        changed(an_outcome(), host=1),
        changed(an_outcome(), a_key_of_the_future=1),
        changed(an_outcome(), signature="none:x:y"),
        encode(Outcome(job_id="job-1", status="succeeded")),
    ],
)
def test_a_changed_or_unsigned_record_is_refused(data: bytes) -> None:
    with pytest.raises(SignatureError, match=NAME) as caught:
        verify(data, KEY, name=NAME)
    assert "KINETIC_TRUST_BUCKET" in str(caught.value)


def test_the_error_for_another_key_differs_from_that_for_a_change() -> None:
    with pytest.raises(SignatureError, match=f"another key.*{key_id(OTHER)}"):
        verify(an_outcome(), OTHER, name=NAME)


def test_the_id_of_a_key_does_not_give_it_away() -> None:
    assert key_id(KEY) not in (KEY.hex(), KEY.hex()[:8])
    assert key_id(KEY) != key_id(OTHER)
