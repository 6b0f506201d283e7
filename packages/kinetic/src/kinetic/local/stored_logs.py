"""The durable log in the store, for when a job's folder is gone."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import replace

from kinetic.backends import LogLine
from kinetic.local.logs import interleaved, last_lines
from kinetic_payload.layout import JobObjects
from kinetic_payload.store import Store


def stored_lines(store: Store, job_id: str, *, tail: int | None = None) -> Iterator[LogLine]:
    """Iterate over the stored log of the latest attempt, or over its last *tail* lines."""
    names = JobObjects(job_id)
    attempts = _numbers(store, names.logs)
    if not attempts:
        return
    attempt = max(attempts)
    hosts = sorted(_numbers(store, f"{names.logs}{attempt}/"))
    prefixes = {host: names.log_chunks(attempt, host) for host in hosts}
    if tail is None:
        parts = [(host, _lines(store, prefix)) for host, prefix in prefixes.items()]
        found = interleaved(parts, attempt)
    else:
        ends = [(host, _tail(store, prefix, tail)) for host, prefix in prefixes.items()]
        found = last_lines(ends, attempt, tail)
    yield from (replace(line, hosts=len(hosts)) for line in found)


def _numbers(store: Store, prefix: str) -> list[int]:
    names = (folder.removeprefix(prefix).rstrip("/") for folder in store.folders(prefix))
    numbers = (name.removeprefix("host-") for name in names)
    return [int(number) for number in numbers if number.isdigit()]


def _lines(store: Store, prefix: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    unfinished = ""
    for info in store.list(prefix):
        *lines, unfinished = (unfinished + decoder.decode(store.read(info.name))).split("\n")
        yield from (line.removesuffix("\r") for line in lines)
    if rest := unfinished + decoder.decode(b"", final=True):
        yield rest


def _tail(store: Store, prefix: str, count: int) -> list[str]:
    data = b""
    for info in reversed(list(store.list(prefix))):
        if data.count(b"\n") > count:
            break
        data = store.read(info.name) + data
    lines = data.decode(errors="replace").removesuffix("\n").split("\n") if data else []
    return [line.removesuffix("\r") for line in lines[-count:]] if count > 0 else []
