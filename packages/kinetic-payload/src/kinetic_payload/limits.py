"""Limits of records: their sizes, and the range of each number in them.

A process that can write to a bucket can write anything into a record. So a reader loads no more bytes
than a record may have. It refuses numbers out of range, because it would count to them, wait for that long, or
pass them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.errors import IntegrityError, RecordError

if TYPE_CHECKING:
    from kinetic_payload.stores.store import Store

MOST_HOSTS: Final = 4096
"""The most hosts of one job. The largest slices have about 3,000."""
MOST_INPUTS: Final = 100_000
"""The most inputs of one batch: Kubernetes accepts so many indexes of a Job."""
MOST_LEASE: Final = 600.0
"""The most seconds for which a lease may be valid."""
MOST_CHUNK: Final = 8 << 20
"""The most bytes of one chunk of a log; writers use half of that."""

_KIB: Final = 1 << 10
_SIZES: Final = {
    "handle.json": 256 * _KIB,
    "outcome.json": 256 * _KIB,
    "lease.json": 16 * _KIB,
    "pending.json": 64 * _KIB,
}
_CLAIM: Final = 16 * _KIB
_MARKER: Final = 128 << 20
"""The marker of a `Data` that is mounted lists each file."""
_HOST_OUTCOME: Final = 8 << 20
"""A host outcome contains up to two small pickles, a traceback and notes."""

_COUNT: Final = (0, 2**31 - 1)
_TIME: Final = (0.0, 253_402_300_799.0)
"""Seconds from 1970 to the end of the year 9999."""
_INTEGERS: Final = (-(2**53), 2**53)
_NUMBERS: Final = (-1e18, 1e18)
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "hosts": (1, MOST_HOSTS),
    "host": (0, MOST_HOSTS - 1),
    "other_failed_hosts": (0, MOST_HOSTS - 1),
    "attempt": (1, 2**31 - 1),
    "retries": _COUNT,
    "group_index": _COUNT,
    "total_expected": _COUNT,
    "pid": (0, 2**63 - 1),
    "seconds": (0.001, MOST_LEASE),
    "size": (0, 2**53),
    "peak_memory": (0, 2**53),
    "exit_code": (-(2**31), 2**32),
    "signal": (0, 1024),
    "exited_with": (0, 255),
    "version": _COUNT,
    "claimed_at": _TIME,
    "written_at": _TIME,
    "started_at": _TIME,
    "finished_at": _TIME,
    "stopped_at": _TIME,
    "at": _TIME,
    "cpus": (1, 2**20),
    "cpu": (0, 2**20),
    "busy": (0, 100),
    "memory": (0, 2**53),
    "memory_limit": (1, 2**53),
    "memory_total": (0, 2**53),
    "first": _TIME,
    "last": _TIME,
}
"""By the name of the field, in any record."""


def read_record(store: Store, name: str, *, listed: bytes | None = None) -> bytes:
    """Return the record *name*; fetch no more of it than a record may have.

    It is not fetched if its bytes are known, from a list of the store (*listed*).

    Raises:
        RecordError: It has more bytes.
    """
    other = _CLAIM if name.endswith(".claim") else _HOST_OUTCOME
    most = _SIZES.get(name.rpartition("/")[2], other)
    if name.startswith("data-markers/"):
        most = _MARKER
    data = store.read(name, end=most + 1) if listed is None else listed
    if len(data) > most:
        raise RecordError(
            f"{store.location}/{name} has more than the {most:,} bytes that a record may have."
        )
    return data


def refuse_larger(name: str, size: int, most: int | None) -> None:
    """Make sure that *size*, of the object *name*, is at most *most* bytes, if that is given.

    Raises:
        IntegrityError: It has more bytes.
    """
    if most is not None and size > most:
        raise IntegrityError(f"{name!r} has {size:,} bytes; at most {most:,} were expected.")


def checked_number(field: str, value: Any) -> None:
    """Make sure that *value*, if it is a number, is one that the field *field* of a record may hold.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    least, most = _RANGES.get(field, _INTEGERS if isinstance(value, int) else _NUMBERS)
    if not least <= value <= most:  # Also refuses NaN.
        raise ValueError(f"{field} is not between {least:g} and {most:g}")
