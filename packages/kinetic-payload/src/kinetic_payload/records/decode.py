"""Strict decoding of records on the client: msgspec checks every type."""

from __future__ import annotations

import json
import threading
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.layout import WIRE_VERSION
from kinetic_payload.limits import checked_number
from kinetic_payload.printable import printable

if TYPE_CHECKING:
    from kinetic_payload.records.encode import Record

R = TypeVar("R", bound="Record")
_T = TypeVar("_T")


class _Versioned(msgspec.Struct):
    version: int = 1


def decode(kind: type[R], data: bytes, *, name: str) -> R:
    """Decode *data*, read from the object *name*, as a record of *kind*.

    Every number is within its limits, and control characters of texts are escaped.

    Raises:
        FutureRecordError: A newer Kinetic wrote it.
        RecordError: It is not such a record; the message names the object and the field.
    """
    try:
        written = _parsed(data, _Versioned).version
        if written > WIRE_VERSION:
            raise FutureRecordError(
                f"{name} was written in format {written}; this Kinetic reads up to {WIRE_VERSION}.",
                hint="Upgrade Kinetic here, or use the version that submitted the job.",
            )
        record = _parsed(data, kind)
        _check_numbers("", record)
        # Text without these cannot have a control character.
        harmless = data.isascii() and b"\\" not in data and b"\x7f" not in data
        return record if harmless else _printable(record)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # A `ValueError`: invalid JSON, invalid UTF-8, or a number too long to be read.
        if isinstance(error, FutureRecordError):
            raise
        raise RecordError(f"{name} is not a valid {kind.__name__}: {_short(error)}.") from error


def checked(kind: type[_T], values: object) -> _T:
    """Return *values*, parsed from JSON, as *kind*; ignore keys that it does not know.

    Raises:
        RecordError: A field is missing or has the wrong type; the message names it.
    """
    _decoder(kind)
    try:
        return msgspec.convert(values, type=kind)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise RecordError(f"This is not a valid {kind.__name__}: {_short(error)}.") from error


def _short(error: Exception) -> str:
    """Return the message of *error*, with long values shortened."""
    text = str(error)
    return text if len(text) < 500 else f"{text[:300]}…{text[-100:]}"


def _check_numbers(field: str, value: Any) -> None:
    """Make sure that all numbers in *value*, the field *field* of a record, are within their limits.

    Raises:
        ValueError: A number is beyond its limits; the message names its field.
    """
    if value is None or isinstance(value, str):
        return  # Most fields. A list of jobs checks every field, so this comes first.
    if isinstance(value, int | float):
        checked_number(field, value)
    elif isinstance(value, tuple):
        for item in value:
            _check_numbers(field, item)
    else:
        inner = value if isinstance(value, dict) else vars(value)
        for name, item in inner.items():
            _check_numbers(field if isinstance(value, dict) else name, item)


def _printable(value: Any) -> Any:
    """Return *value*, a record or a part of one, with control characters of its texts escaped."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple):
        return tuple([_printable(item) for item in value])
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: _printable(item) for name, item in vars(value).items()})
    return value


def _parsed(data: bytes, kind: type[_T]) -> _T:
    decoder = _decoder(kind)
    if rb"\ud" not in data:
        return decoder.decode(data)
    # Half a surrogate pair stands for a byte that is not UTF-8, of a file name for instance. msgspec does not
    # parse it in JSON, but accepts it in text that is parsed already.
    return msgspec.convert(json.loads(data), type=kind)


def _decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return the decoder of *kind*; only one thread at a time creates one.

    msgspec registers a type before it knows all its fields: a second thread that uses it then crashes the process.
    """
    found = _decoders.get(kind)
    if found is None:
        with _creation_lock:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


_decoders: Final[dict[type, msgspec.json.Decoder[Any]]] = {}
_creation_lock: Final = threading.Lock()
