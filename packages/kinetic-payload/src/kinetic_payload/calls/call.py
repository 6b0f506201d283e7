"""Dump and load a call: one line of JSON that says what it is, then the pickle."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, Protocol

from kinetic_payload.calls.loading import load
from kinetic_payload.calls.loading import python_version as python_version
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.layout import WIRE_VERSION

if TYPE_CHECKING:
    from kinetic_payload.project.roots import ProjectPlan

MainKind = Literal["script", "module", "notebook", "interactive"]

_LONGEST_HEADER: Final = 16 * 1024 * 1024
_CHUNK: Final = 1024 * 1024
_IN_MEMORY: Final = 64 * 1024 * 1024
"""Pickles up to this size never touch a disk; larger ones go to a file that has no name."""


@dataclass(frozen=True, kw_only=True)
class CallHeader:
    """What is known of a call without unpickling anything."""

    format: int = WIRE_VERSION
    python: str
    """The client's, `3.11.7`."""
    cloudpickle: str
    kinetic: str
    function: str
    """Qualified name, for messages."""
    module: str
    context_digest: str | None
    paths: tuple[str, ...]
    """Entries of `sys.path` below the project's root, first ones first; `""` is the root."""
    cwd: str
    """Below the root."""
    main: str | None
    """The entry script, below the root."""
    main_kind: MainKind
    data: tuple[DataRef, ...] = ()
    main_name: str | None = None
    """What stood after `python -m`, where `main_kind` is `module`."""
    late_paths: tuple[str, ...] = ()
    """Like `paths`, for the end of `sys.path`; `mainmodule.rebuild` appends them."""
    platform: str = ""
    """The client's, `darwin-arm64`; the format began without it."""

    def encode(self) -> bytes:
        """Return the header as one line of JSON, without the line's end."""
        values = asdict(self)
        for ref in values["data"]:
            if ref["local_path"] is None:  # The format began without it.
                del ref["local_path"]
        if not values["platform"]:  # Nor did it have this.
            del values["platform"]
        return json.dumps(values, sort_keys=True).encode()

    @classmethod
    def decode(cls, line: bytes) -> CallHeader:
        """Rebuild a header from `encode`; unknown keys are ignored.

        Raises:
            FutureRecordError: A newer Kinetic wrote it.
            RecordError: It is no header.
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
    """Return the system and the machine that compiled modules are built for: `linux-x86_64`."""
    return f"{sys.platform}-{os.uname().machine}" if hasattr(os, "uname") else sys.platform


@dataclass(frozen=True)
class LoadedCall:
    """A call, ready to be made."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """What differs here from where the call was made."""


@dataclass(frozen=True)
class FoundData:
    """A `Data` that pickle met, or a volume."""

    key: str
    value: Any
    mount: str | None = None


class Writable(Protocol):
    """A stream to write to."""

    def write(self, data: bytes, /) -> int:
        """Write *data*."""
        ...


class DumpedCall:
    """A pickled call. Its header is completed when it is written: data must be uploaded before."""

    def __init__(
        self,
        stream: BinaryIO,
        header: CallHeader,
        data: Sequence[FoundData],
        sizes: Callable[[], list[tuple[str, int]]],
    ) -> None:
        self._stream = stream
        self._header = header
        self._sizes = sizes
        self.data = tuple(data)
        """The volumes, then each `Data` of the arguments and the code once."""
        self.size = stream.seek(0, 2)
        """Bytes of the pickle."""

    @property
    def pickle(self) -> bytes:
        """The whole pickle, in memory."""
        self._stream.seek(0)
        return self._stream.read()

    def header(
        self, *, refs: Sequence[DataRef], context_digest: str | None, kinetic_version: str
    ) -> CallHeader:
        """Return the header, given what became known after the call was pickled."""
        from dataclasses import replace

        return replace(
            self._header,
            data=tuple(refs),
            context_digest=context_digest,
            kinetic=kinetic_version,
        )

    def write(
        self,
        stream: Writable,
        *,
        refs: Sequence[DataRef],
        context_digest: str | None,
        kinetic_version: str,
    ) -> str:
        """Write the payload, header and pickle, and return its SHA-256."""
        from hashlib import sha256

        header = self.header(
            refs=refs, context_digest=context_digest, kinetic_version=kinetic_version
        )
        digest = sha256()
        self._stream.seek(0)
        chunk = header.encode() + b"\n"
        while chunk:
            digest.update(chunk)
            stream.write(chunk)
            chunk = self._stream.read(_CHUNK)
        return digest.hexdigest()

    def encode(
        self, *, refs: Sequence[DataRef], context_digest: str | None, kinetic_version: str
    ) -> bytes:
        """Return the payload in memory."""
        from io import BytesIO

        stream = BytesIO()
        self.write(
            stream, refs=refs, context_digest=context_digest, kinetic_version=kinetic_version
        )
        return stream.getvalue()

    def oversize_warning(self, limit_mb: float) -> str | None:
        """Return what to say about a pickle over *limit_mb* megabytes, or None if it is smaller."""
        if self.size <= limit_mb * 1e6:
            return None
        largest = sorted(self._sizes(), key=lambda named: -named[1])[:5]
        named = ", ".join(f"{name} ({size / 1e6:,.1f} MB)" for name, size in largest if size > 1e5)
        return (
            f"The call of {self._header.function} pickles to {self.size / 1e6:,.1f} MB"
            + (f"; the largest parts: {named}. " if named else ". ")
            + "Save large data to a file and pass it as kinetic.Data, which is uploaded once; "
            "KINETIC_PAYLOAD_SIZE_WARN_MB sets when this is said."
        )

    def close(self) -> None:
        """Forget the pickle."""
        self._stream.close()


def dump_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    plan: ProjectPlan,
    ships: Callable[[Path], bool],
    data_type: type | tuple[type, ...] = (),
    volumes: Mapping[str, Any] | None = None,
) -> DumpedCall:
    """Pickle the call of *function* for a worker that has the snapshot of *plan*'s project, if any.

    *ships* tells whether the snapshot holds a file: a module that is ignored goes by value.

    Raises:
        PayloadError: Something will not pickle; the message names it.
    """
    from kinetic_payload.calls.dump import dump

    stream = _spool()
    try:
        return dump(
            function,
            tuple(args),
            dict(kwargs),
            plan=plan,
            ships=ships,
            data_type=data_type,
            volumes=volumes or {},
            stream=stream,
        )
    except BaseException:
        stream.close()
        raise


def _spool() -> BinaryIO:
    from tempfile import SpooledTemporaryFile

    return SpooledTemporaryFile(max_size=_IN_MEMORY)  # type: ignore[return-value]


def read_header(stream: BinaryIO) -> CallHeader:
    """Read the header from the beginning of a payload; nothing is unpickled.

    Raises:
        FutureRecordError: A newer Kinetic wrote it.
        RecordError: It is no payload.
    """
    line = stream.readline(_LONGEST_HEADER)
    if not line.endswith(b"\n"):
        raise RecordError("The payload ends within its header: it is not whole, or no payload.")
    return CallHeader.decode(line)


def load_call(stream: BinaryIO, header: CallHeader) -> LoadedCall:
    """Unpickle the call from where `read_header` left *stream*.

    `sys.path`, `mainmodule.rebuild` and `references.place` come first.

    Raises:
        PayloadError: It contains a function by value, and another minor version of Python wrote it.
    """
    from kinetic_payload.calls.code import add_hints
    from kinetic_payload.calls.module_globals import restore

    def follows(nothing: Any) -> Any:
        try:
            return load(stream, header.python)
        except EOFError:
            return nothing

    function, args, kwargs = load(stream, header.python)
    hints, globals_then = follows({}), follows(())
    add_hints(hints, header.python)
    warnings = restore(globals_then, header.python)
    return LoadedCall(function, args, kwargs, tuple(warnings))


def dump_value(value: Any, stream: BinaryIO) -> None:
    """Pickle what a call returned or raised, for the client.

    Instances of classes that came with the call are instances of the client's own classes again,
    and the client's classes stay as they are.
    """
    from kinetic_payload.calls.value_pickler import ValuePickler

    ValuePickler(stream).dump(value)
