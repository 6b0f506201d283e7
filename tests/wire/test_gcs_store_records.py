"""Records whose content is also in the metadata of their objects, so that a list shows it."""

from __future__ import annotations

import json

import pytest

from kinetic_payload.errors import PreconditionFailedError
from kinetic_payload.stores.gcs import GcsStore, Service
from kinetic_payload.stores.store import ABSENT
from kinetic_servers.gcs import GcsServer

NAME = "job/outcome.json"


def shown(store: GcsStore) -> bytes | None:
    ((info, content),) = store.records()
    assert info.name == NAME
    return content


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (b" " * 4096, True),
        (b"x" * 4097, False),
        ("ä".encode() * 682, True),  # Of %C3%A4, 4,092 characters.
        ("ä".encode() * 683, False),
        (bytes(range(256)), True),
        (json.dumps({"text": "日本 %25\r\n"}, ensure_ascii=False).encode(), True),
    ],
)
def test_a_small_record_is_stored_in_metadata_by_the_same_upload(
    gcs: GcsServer, store: GcsStore, data: bytes, fits: bool
) -> None:
    store.write(NAME, data, if_generation=ABSENT)

    assert gcs.requests.count() == 1
    assert gcs.read("bucket", NAME) == store.read(NAME) == data
    assert shown(store) == (data if fits else None)
    (stored,) = gcs.objects("bucket")
    assert all(text.isascii() and text.isprintable() for text in stored.fields["metadata"].values())


def test_only_records_of_a_job_list_are_stored_in_metadata(gcs: GcsServer, store: GcsStore) -> None:
    for name in (
        "job/payload.pkl",
        "job/lease.json",
        "job/attempts/1/host-0.json",
        "x/y/handle.json",
    ):
        store.write(name, b"secret")

    assert not any("metadata" in stored.fields for stored in gcs.objects("bucket"))


def test_metadata_contains_the_last_written_record(store: GcsStore) -> None:
    first = store.write(NAME, b"first")
    with pytest.raises(PreconditionFailedError):
        store.write(NAME, b"late", if_generation=ABSENT)
    assert shown(store) == b"first"
    second = store.write(NAME, b"second", if_generation=first.generation)
    assert shown(store) == b"second"
    store.renew(NAME, if_generation=second.generation)
    assert shown(store) == b"second"
    store.write(NAME, b"third" * 1000)
    assert shown(store) is None


@pytest.mark.parametrize(("prefix", "others"), [("", 30), ("/team", 3), ("/a[b]*{c,d}?!", 3)])
def test_records_are_found_without_pages_of_other_objects(
    gcs: GcsServer, prefix: str, others: int
) -> None:
    store = GcsStore(f"bucket{prefix}", service=Service(gcs.endpoint, anonymous=True))
    GcsStore("bucket/teams", service=Service(gcs.endpoint, anonymous=True)).write(NAME, b"")
    for number in range(others):
        store.write(f"{number % 3}job-{number}/payload.pkl", b"")
    for folder in ("data/x/files/f", "groups/grp-0a1b2c3d/jobs/000001", "logs/a/1", "zzz/y"):
        store.write(f"{folder}/handle.json", b"")
    store.write("job/handle.json", b"record")
    gcs.limit_pages(20)
    gcs.requests.clear()

    assert [(info.name, content) for info, content in store.records()] == [
        ("job/handle.json", b"record")
    ]
    # A list for each part of the bucket that may hold jobs.
    assert gcs.requests.count() == gcs.requests.count(operation="objects.list") == 5
    assert sum(logged.bytes_out for logged in gcs.requests) < 3000
