"""A call as it is stored: a header, which is one line of JSON, then a pickle."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, BinaryIO, Final, Literal

from kinetic_payload.calls.unpickle import load
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import WIRE_VERSION

MainKind = Literal["script", "module", "notebook", "interactive"]

_LONGEST_HEADER: Final = 16 * 1024 * 1024


@frozen(kw_only=True)
class CallHeader:
    """The header of a stored call, readable without unpickling."""

    format: int = WIRE_VERSION
    python: str
    """The client's version, such as `3.11.7`."""
    cloudpickle: str
    kinetic: str
    function: str
    """Qualified name, for messages."""
    module: str
    context_digest: str | None
    paths: tuple[str, ...]
    """Entries of `sys.path` below the project's root, in order; `""` is the root."""
    cwd: str
    """The working directory, relative to the root."""
    main: str | None
    """The entry script, relative to the root."""
    main_kind: MainKind
    data: tuple[DataRef, ...] = ()
    main_name: str | None = None
    """The argument of `python -m`, if `main_kind` is `module`."""
    late_paths: tuple[str, ...] = ()
    """Like `paths`, but `main_module.rebuild` appends them to the end of `sys.path`."""
    platform: str = ""
    """The client's platform, such as `darwin-arm64`; missing in early payloads."""

    def encode(self) -> bytes:
        """Return the header as one line of JSON, without the line's end."""
        values = asdict(self)
        for ref in values["data"]:
            if ref["local_path"] is None:  # Early payloads lack this key.
                del ref["local_path"]
        if not values["platform"]:  # They lack this one, too.
            del values["platform"]
        return json.dumps(values, sort_keys=True).encode()

    @classmethod
    def decode(cls, line: bytes) -> CallHeader:
        """Rebuild a header from the bytes that `encode` returned; ignore unknown keys.

        Raises:
            FutureRecordError: A newer Kinetic wrote it.
            RecordError: It is not a header.
        """
        try:
            values = json.loads(line)
            written = values["format"]
            if written > WIRE_VERSION:
                raise FutureRecordError(
                    f"The call was pickled in format {written}; this Kinetic reads up to "
                    f"{WIRE_VERSION}.",
                    hint="Use the runner of the version that submitted it: rebuild the image, or "
                    "upgrade Kinetic there.",
                )
            known = {field.name for field in fields(cls)}
            values = {key: value for key, value in values.items() if key in known}
            for key in ("paths", "late_paths"):
                values[key] = tuple(values.get(key, ()))
            names = {field.name for field in fields(DataRef)}
            values["data"] = tuple(
                DataRef(**{key: value for key, value in ref.items() if key in names})
                for ref in values.get("data", ())
            )
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if isinstance(error, FutureRecordError):
                raise
            raise RecordError(f"The payload has no valid header: {error!r}.") from error


def platform_name() -> str:
    """Return the system and machine that compiled modules here are built for, such as `linux-x86_64`."""
    return f"{sys.platform}-{os.uname().machine}" if hasattr(os, "uname") else sys.platform


@frozen()
class LoadedCall:
    """A call that was unpickled, ready to be made."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """Differences between this process and the one that made the call."""


def read_header(stream: BinaryIO) -> CallHeader:
    """Read the header at the beginning of a payload, without unpickling.

    Raises:
        FutureRecordError: A newer Kinetic wrote it.
        RecordError: It is not a payload.
    """
    line = stream.readline(_LONGEST_HEADER)
    if not line.endswith(b"\n"):
        raise RecordError("The payload ends within its header: it is incomplete, or not a payload.")
    return CallHeader.decode(line)


def load_call(stream: BinaryIO, header: CallHeader, given: BinaryIO | None = None) -> LoadedCall:
    """Unpickle the call from where `read_header` left *stream*, and its further arguments from *given*.

    Before this, set `sys.path`, and call `main_module.rebuild` and `references.place`.

    Raises:
        PayloadError: It contains a function by value, from another minor version of Python.
    """
    from kinetic_payload.calls.module_globals.restore import Restorer
    from kinetic_payload.calls.rebuild import add_hints

    modules = Restorer(header.python)

    def load_next(stream: BinaryIO, default: Any) -> Any:
        try:
            return load(stream, header.python, modules.find)
        except EOFError:
            return default

    def load_part(stream: BinaryIO) -> Any:
        part = load(stream, header.python, modules.find)
        hints, globals_at_call = load_next(stream, {}), load_next(stream, ())
        add_hints(hints, header.python, modules.find)
        modules.restore(globals_at_call)
        return part

    function, args, kwargs = load_part(stream)
    if given is not None:
        more, named = load_part(given)
        args, kwargs = (*args, *more), {**kwargs, **named}
    return LoadedCall(function, args, kwargs, tuple(modules.warnings))
