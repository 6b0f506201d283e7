"""(child) The result that the client gets: a value or an exception, pickled if possible, else as text."""

from __future__ import annotations

import binascii
import hashlib
import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import FunctionType
from typing import Any, BinaryIO, Final

from kinetic_payload.calls.byte_counter import ByteCounter
from kinetic_payload.calls.value_pickler import ValuePickler
from kinetic_payload.errors import KineticError, PreconditionFailedError, StoreError
from kinetic_payload.layout import INLINE_LIMIT, REPORT_SECONDS
from kinetic_payload.records.host_outcome import ErrorInfo, Pickled
from kinetic_payload.records.pending_uploads import PendingUploads, overwritten_error, stored_digest
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_runner.child.forks import leave_if_forked
from kinetic_runner.child.tracebacks import bounded, message_of, notes_of, text_of, type_name
from kinetic_runner.store_retries import WAIT, OnFailure, ignore_failure, retry

REPR_LIMIT: Final = 2000


class UnpicklableValueError(KineticError, TypeError):
    """The function returned a value that cannot be pickled."""


def keep(
    value: Any,
    store: Store,
    name: str,
    *,
    pending_uploads: PendingUploads | None = None,
    replace: bool = False,
    seconds: float = REPORT_SECONDS,
    pause: Callable[[float], bool] = WAIT,
    on_failure: OnFailure = ignore_failure,
) -> Pickled:
    """Pickle *value*: into the result if it is small, else streamed into the object *name*.

    The object appears only when it holds the whole value. It must not exist yet, unless *replace* is True: then
    an existing object is not the job's, and is replaced. Failed writes are retried for *seconds*, with *pause*
    between them: a value that took hours to compute must not be lost.

    With *pending_uploads*, the value may be written to a file there, for the parent to store. If the store is a
    service, which may be unreachable for long, it is written there first.

    Raises:
        UnpicklableValueError: The value cannot be pickled; the cause is the pickler's error.
        StoreError: The value could not be stored.
        OSError: The value could not be written to the disk.
    """
    destinations = _destinations(store, name, pending_uploads, replace)
    return retry(
        lambda: _first_of(
            lambda destination: _pickle_to(value, store, name, destination, replace=replace),
            destinations,
        ),
        seconds=seconds,
        pause=pause,
        on_failure=on_failure,
    )


Destination = Callable[[], AbstractContextManager[BinaryIO]]
"""Opens a stream for the bytes of an object: in the store, or on the disk."""


def _destinations(
    store: Store, name: str, pending_uploads: PendingUploads | None, replace: bool
) -> list[Destination]:
    def generation() -> int:
        found = store.stat(name) if replace else None
        return found.generation if found is not None else ABSENT

    destinations: list[Destination] = [lambda: store.writer(name, if_generation=generation())]
    if pending_uploads is not None:
        destinations.insert(0 if store.concurrency > 1 else 1, lambda: pending_uploads.writer(name))
    return destinations


def _first_of(
    write: Callable[[Destination], Pickled], destinations: Sequence[Destination]
) -> Pickled:
    """Return `write(destination)` for the first one for which it succeeds; else raise the first error."""
    failure: Exception | None = None
    for destination in destinations:
        try:
            return write(destination)
        except PreconditionFailedError:
            raise
        except (StoreError, OSError) as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _pickle_to(
    value: Any, store: Store, name: str, destination: Destination, *, replace: bool
) -> Pickled:
    pid = os.getpid()
    with ExitStack() as stack:
        sink = _Sink(lambda: stack.enter_context(destination()))
        try:
            ValuePickler(sink).dump(value)
        except BaseException as error:
            leave_if_forked(pid, error)
            if sink.failure is not None:
                raise sink.failure from None
            raise _unpicklable(value, error) from error
        leave_if_forked(pid)  # Pickling runs user code.
        kept = sink.as_pickled(name)
        try:
            stack.close()
        except PreconditionFailedError as error:
            # A retried create fails if the first try has created the object.
            if kept.name is None or stored_digest(store, name) != kept.digest:
                raise overwritten_error(store, name) if replace else error
        return kept


def error_info(
    error: BaseException,
    store: Store | None,
    name: str,
    *,
    pending_uploads: PendingUploads | None = None,
    replace: bool = False,
    seconds: float = REPORT_SECONDS,
    on_failure: OnFailure = ignore_failure,
) -> ErrorInfo:
    """Describe *error* as text, and add the object itself if it pickles and unpickles again.

    Never raises. Without a *store*, only a small pickle is added; a large one is stored as by `keep`.
    """
    # The text first: pickling runs user code that may change the exception.
    kind, message, notes = type_name(error), message_of(error), notes_of(error)
    text = text_of(error)
    pid = os.getpid()
    pickled, why = None, None
    if isinstance(error, SystemExit):
        why = "SystemExit is not raised again: it would end the process that collects the result"
    else:
        try:
            data = dump_error(error)
            leave_if_forked(pid)
            destinations = (
                _destinations(store, name, pending_uploads, replace) if store is not None else []
            )
            pickled = _keep_bytes(
                data, store, name, destinations, seconds, on_failure, replace=replace
            )
        except BaseException as failure:  # noqa: BLE001 - the text must be reported all the same
            leave_if_forked(pid, failure)
            why = f"{type_name(failure)}: {bounded(message_of(failure), REPR_LIMIT)}"
    return ErrorInfo(kind, message, text, notes, pickled, why)


def dump_error(error: BaseException) -> bytes:
    """Pickle *error* with its causes, such that it unpickles to an equal exception.

    If that fails, its causes are left out.

    Raises:
        Exception: *error* does not pickle, or does not unpickle.
    """
    failure: BaseException | None = None
    for chained in (True, False):
        try:
            data = _dump(error, chained=chained)
            again = pickle.loads(data)
        except BaseException as raised:  # noqa: BLE001 - both steps run user code
            failure = failure or raised
            continue
        if type(again) is type(error) and message_of(again) == message_of(error):
            return data
        failure = failure or TypeError("unpickled, its message differs")
    assert failure is not None
    raise failure


def short_repr(value: object) -> str:
    """Return a bounded `repr` that never raises and never renders all of a large container."""
    import reprlib

    short = reprlib.Repr()
    short.maxlevel, short.maxlist, short.maxtuple, short.maxdict = 4, 20, 20, 20
    short.maxstring = short.maxother = 500
    try:
        return bounded(short.repr(value), REPR_LIMIT)
    except BaseException as error:  # noqa: BLE001 - `__repr__` of a user's class
        return f"<{type(value).__name__}; its repr() failed with {type(error).__name__}>"


class _Sink:
    """A file for the pickler: digests the data, and opens the object once they are large."""

    def __init__(self, open_object: Callable[[], BinaryIO]) -> None:
        self._open = open_object
        self._stream: BinaryIO | None = None
        self._small = io.BytesIO()
        self._digest = hashlib.sha256()
        self.size = 0
        self.failure: BaseException | None = None
        """The error of a write, to distinguish it from an error of pickling."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take one piece of the pickle; large buffers are not copied."""
        count = memoryview(data).nbytes
        try:
            self._digest.update(data)
            self.size += count
            if self._stream is None and self.size > INLINE_LIMIT:
                self._stream = self._open()
                self._stream.write(self._small.getbuffer())
            (self._stream or self._small).write(data)
        except BaseException as error:
            self.failure = error
            raise
        return count

    def as_pickled(self, name: str) -> Pickled:
        """Describe what was written."""
        digest = self._digest.hexdigest()
        if self._stream is not None:
            return Pickled(self.size, digest, name=name)
        return Pickled(self.size, digest, inline=_base64(self._small.getvalue()))


class _ErrorPickler(ValuePickler):
    """Also pickles what exceptions lose by default: their cause and context."""

    def __init__(self, file: BinaryIO, *, chained: bool) -> None:
        super().__init__(file)
        self._chained = chained

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if not self._chained or not isinstance(obj, BaseException):
            return reduced
        if reduced is not NotImplemented:  # It is rebuilt without its `__init__`.
            reduced[2][0].update(_chain(obj))
            return reduced
        reduced = obj.__reduce_ex__(5)
        if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 3:
            return reduced
        make, args, state = (*reduced, None)[:3]
        if state is None or type(state) is dict:
            # `BaseException.__setstate__` sets attributes; these can be set in this way.
            state = {**(state or {}), **_chain(obj)} or None
        return (make, args, state) if state is not None else (make, args)


def _unpicklable(value: Any, error: BaseException) -> UnpicklableValueError:
    """Return an error that names the piece of *value* that does not pickle, and what to do about it."""
    from kinetic_payload.calls.unpicklable import advise, describe, find_culprit

    reason = f"{type_name(error)}: {message_of(error)}"
    hint = "Return plain data, or write it below KINETIC_OUTPUT_DIR and return its path."
    piece = ""
    try:
        culprit = find_culprit("value", value, _problem_with, _globals_of)
        if culprit is not None:
            piece = f": {culprit.path} is {describe(culprit.piece)}"
            hint = advise(culprit)
    except BaseException:  # noqa: BLE001 - code of the value's classes takes part in the search
        piece = ""
    return UnpicklableValueError(
        f"The function returned a value that cannot be pickled{piece} ({reason}).", hint=hint
    )


def _problem_with(value: Any) -> Exception | None:
    try:
        ValuePickler(ByteCounter()).dump(value)
    except Exception as error:  # noqa: BLE001 - any error is the answer
        return error
    return None


def _globals_of(function: FunctionType) -> Mapping[str, Any]:
    from kinetic_payload.calls.function_state import function_state

    found: Mapping[str, Any] = function_state(function)[1]["__globals__"]
    return found


def _chain(error: BaseException) -> dict[str, Any]:
    chain: dict[str, Any] = {}
    hidden = error.__suppress_context__ and error.__context__ is not error.__cause__
    if error.__context__ is not None and not hidden:
        chain["__context__"] = error.__context__
    if error.__cause__ is not None:
        chain["__cause__"] = error.__cause__
    if error.__suppress_context__:
        chain["__suppress_context__"] = True
    return chain


def _dump(error: BaseException, *, chained: bool) -> bytes:
    file = io.BytesIO()
    _ErrorPickler(file, chained=chained).dump(error)
    return file.getvalue()


def _keep_bytes(
    data: bytes,
    store: Store | None,
    name: str,
    destinations: Sequence[Destination],
    seconds: float,
    on_failure: OnFailure,
    *,
    replace: bool,
) -> Pickled:
    digest = hashlib.sha256(data).hexdigest()
    if len(data) <= INLINE_LIMIT:
        return Pickled(len(data), digest, inline=_base64(data))
    if store is None:
        raise StoreError(f"it has {len(data):,} bytes, and there is no store to put it into")
    kept = Pickled(len(data), digest, name=name)

    def write(destination: Destination) -> Pickled:
        try:
            with destination() as stream:
                stream.write(data)
        except PreconditionFailedError as error:
            if stored_digest(store, name) != digest:
                raise overwritten_error(store, name) if replace else error
        return kept

    return retry(
        lambda: _first_of(write, destinations), seconds=seconds, pause=WAIT, on_failure=on_failure
    )


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
