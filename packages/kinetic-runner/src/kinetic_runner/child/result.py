"""(child) The result that the client gets: a value or an exception, pickled if possible, else as text."""

from __future__ import annotations

import binascii
import hashlib
import io
import os
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, BinaryIO, Final

from kinetic_payload.calls.classes.reduce import ByteCounter
from kinetic_payload.calls.value_pickler import ValuePickler
from kinetic_payload.errors import KineticError, PreconditionFailedError, StoreError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import INLINE_LIMIT, REPORT_SECONDS
from kinetic_payload.records.host_outcome import ErrorInfo, Pickled
from kinetic_payload.records.pending_uploads import PendingUploads, overwritten_error, stored_digest
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_runner.child.shutdown import leave_if_forked
from kinetic_runner.child.tracebacks import bounded, message_of, notes_of, text_of, type_name
from kinetic_runner.store_retries import WAIT, OnFailure, ignore_failure, retry

REPR_LIMIT: Final = 2000


class UnpicklableValueError(KineticError, TypeError):
    """The function returned a value that cannot be pickled."""


@frozen(kw_only=True)
class ResultStorage:
    """Where the result of one host is stored if it is large: in the object *name* of *store*.

    The object must not exist yet, unless *replace* is True: then an existing object is not the job's, and is
    replaced. Failed writes are retried for *seconds*, with *pause* between them: a value that took hours to
    compute must not be lost.

    With *pending_uploads*, the value may be written to a file there, for the parent to store. If the store is a
    service, which may be unreachable for long, it is written there first.
    """

    store: Store
    name: str
    pending_uploads: PendingUploads | None = None
    replace: bool = False
    seconds: float = REPORT_SECONDS
    pause: Callable[[float], bool] = WAIT
    on_failure: OnFailure = ignore_failure

    def keep(self, write: Callable[[_Sink], object]) -> Pickled:
        """Keep what *write* writes: in the result if it is small, else as an object, once it is complete.

        Raises:
            StoreError: It could not be stored.
            OSError: It could not be written to the disk.
        """
        openers: list[Callable[[], AbstractContextManager[BinaryIO]]] = [self._open_object]
        if (pending := self.pending_uploads) is not None:
            first = self.store.concurrency > 1
            openers.insert(0 if first else 1, lambda: pending.writer(self.name))

        def keep_anywhere() -> Pickled:
            failure: Exception | None = None
            for open_stream in openers:
                try:
                    return self._keep_in(open_stream, write)
                except PreconditionFailedError:
                    raise
                except (StoreError, OSError) as error:
                    failure = failure or error
            assert failure is not None
            raise failure

        return retry(
            keep_anywhere, seconds=self.seconds, pause=self.pause, on_failure=self.on_failure
        )

    def _open_object(self) -> AbstractContextManager[BinaryIO]:
        found = self.store.stat(self.name) if self.replace else None
        generation = found.generation if found is not None else ABSENT
        return self.store.writer(self.name, if_generation=generation)

    def _keep_in(
        self,
        open_stream: Callable[[], AbstractContextManager[BinaryIO]],
        write: Callable[[_Sink], object],
    ) -> Pickled:
        with ExitStack() as stack:
            sink = _Sink(lambda: stack.enter_context(open_stream()))
            write(sink)
            kept = sink.as_pickled(self.name)
            try:
                stack.close()
            except PreconditionFailedError as error:
                # A retried create fails if the first try has created the object.
                if kept.name is None or stored_digest(self.store, self.name) != kept.digest:
                    raise overwritten_error(self.store, self.name) if self.replace else error
            return kept


def keep_value(value: Any, storage: ResultStorage) -> Pickled:
    """Pickle *value* into the result, or stream it into *storage* if it is large.

    Raises:
        UnpicklableValueError: The value cannot be pickled; the cause is the pickler's error.
        StoreError: The value could not be stored.
        OSError: The value could not be written to the disk.
    """
    pid = os.getpid()

    def write(sink: _Sink) -> None:
        try:
            ValuePickler(sink).dump(value)
        except BaseException as error:
            leave_if_forked(pid, error)
            if sink.failure is not None:
                raise sink.failure from None
            raise _unpicklable(value, error) from error
        leave_if_forked(pid)  # Pickling runs user code.

    return storage.keep(write)


def error_info(error: BaseException, storage: ResultStorage | None) -> ErrorInfo:
    """Describe *error* as text, and add the object itself if it pickles and unpickles again.

    Never raises. Without a *storage*, only a small pickle is added.
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
            if len(data) <= INLINE_LIMIT:
                pickled = Pickled(len(data), hashlib.sha256(data).hexdigest(), inline=_base64(data))
            elif storage is None:
                why = f"it has {len(data):,} bytes, and there is no store to put it into"
            else:
                pickled = storage.keep(lambda sink: sink.write(data))
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
            file = io.BytesIO()
            _ErrorPickler(file, chained=chained).dump(error)
            data = file.getvalue()
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
    from kinetic_payload.calls.function_state import function_state
    from kinetic_payload.calls.unpicklable import advise, describe, find_culprit

    def problem_with(piece: Any) -> Exception | None:
        try:
            ValuePickler(ByteCounter()).dump(piece)
        except Exception as error:  # noqa: BLE001 - any error is the answer
            return error
        return None

    def globals_of(function: Any) -> Any:
        return function_state(function)[1]["__globals__"]

    reason = f"{type_name(error)}: {message_of(error)}"
    hint = "Return plain data, or write it below KINETIC_OUTPUT_DIR and return its path."
    piece = ""
    try:
        culprit = find_culprit("value", value, problem_with, globals_of)
        if culprit is not None:
            piece = f": {culprit.path} is {describe(culprit.piece)}"
            hint = advise(culprit)
    except BaseException:  # noqa: BLE001 - code of the value's classes takes part in the search
        piece = ""
    return UnpicklableValueError(
        f"The function returned a value that cannot be pickled{piece} ({reason}).", hint=hint
    )


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


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
