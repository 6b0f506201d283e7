"""Strict decoding of records on the client: msgspec checks every type."""

from __future__ import annotations

import json
import threading
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.layout import WIRE_VERSION
from kinetic_payload.limits import checked_number
from kinetic_payload.printable import printable
from kinetic_payload.records import Record

R = TypeVar("R", bound=Record)
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
        record: R = _bounded("", _parsed(data, kind))
        return record
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # A `ValueError` is JSON that is none, text that is none, or a number too long to be read.
        if isinstance(error, FutureRecordError):
            raise
        raise RecordError(f"{name} is not a valid {kind.__name__}: {_short(error)}.") from error


def checked(kind: type[_T], values: object) -> _T:
    """Return *values*, which came out of JSON, as *kind*; keys that it does not know are ignored.

    Raises:
        RecordError: A field is missing or has the wrong type; the message names it.
    """
    _decoder(kind)
    try:
        return msgspec.convert(values, type=kind)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise RecordError(f"This is not a valid {kind.__name__}: {_short(error)}.") from error


def _short(error: Exception) -> str:
    """Return what an error says, but no more of a value than helps."""
    text = str(error)
    return text if len(text) < 500 else f"{text[:300]}…{text[-100:]}"


def _bounded(field: str, value: Any) -> Any:
    """Return *value*, which the field *field* of a record holds, with texts that do no harm.

    Raises:
        ValueError: A number in it is beyond its limits; the message names its field.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple):
        return tuple([_bounded(field, one) for one in value])
    if isinstance(value, dict):
        return {printable(key): _bounded(field, one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        found = {one.name: getattr(value, one.name) for one in fields(value)}
        safe = {name: _bounded(name, one) for name, one in found.items()}
        return value if safe == found else replace(value, **safe)
    checked_number(field, value)
    return value


def _parsed(data: bytes, kind: type[_T]) -> _T:
    decoder = _decoder(kind)
    if rb"\ud" not in data:
        return decoder.decode(data)
    # Half a surrogate pair: a file name, or a message with one, that is no UTF-8. msgspec refuses to
    # parse that, and has nothing against it as text.
    return msgspec.convert(json.loads(data), type=kind)


def _decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return what decodes *kind*, which msgspec gets to know while no other thread uses it.

    It notes a type before it knows all its fields: a second thread that meets that crashes the process.
    """
    found = _decoders.get(kind)
    if found is None:
        with _learning:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


_decoders: Final[dict[type, msgspec.json.Decoder[Any]]] = {}
_learning: Final = threading.Lock()
