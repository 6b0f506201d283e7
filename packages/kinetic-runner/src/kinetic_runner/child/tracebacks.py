"""(child) Exceptions as text: without Kinetic's frames, bounded, and safe against the user's classes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from kinetic_payload.errors import KineticError

TEXT_LIMIT: Final = 64 * 1024
"""Characters of a whole traceback."""

MESSAGE_LIMIT: Final = 8 * 1024
"""Characters of one exception's message, and of one note."""

NAME_LIMIT: Final = 1024
"""Characters of the name of an exception's class."""

NOTES_LIMIT: Final = 50

_FRAMES_LIMIT: Final = 200
_CHAIN_LIMIT: Final = 50
_KINETIC: Final = frozenset({"kinetic", "kinetic_payload", "kinetic_runner"})


def type_name(error: BaseException) -> str:
    """Return `module.Class`, or only the class of a builtin."""
    kind = type(error)
    module = str(getattr(kind, "__module__", None) or "builtins")
    name = str(getattr(kind, "__qualname__", None) or kind.__name__)
    return bounded(name if module == "builtins" else f"{module}.{name}", NAME_LIMIT)


def message_of(error: BaseException) -> str:
    """Return `str(error)`, bounded, or why there is none."""
    return bounded(_safe_text(error), MESSAGE_LIMIT)


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the notes of *error*, as text and bounded."""
    try:
        notes: object = error.__notes__
    except BaseException:  # noqa: BLE001 - an attribute of a user's class may do anything
        return ()
    if not isinstance(notes, list | tuple):
        return ()
    return tuple(bounded(_safe_text(note), MESSAGE_LIMIT) for note in notes[:NOTES_LIMIT])


def text_of(error: BaseException) -> str:
    """Return the traceback of *error* with its causes, groups and notes, as Python prints it.

    Kinetic's frames, which lead to the user's code, are left out. So are the first of too many frames, and the
    middle of a text that is too long.
    """
    try:
        _trim(error)
        text = "".join(traceback.format_exception(error, limit=-_FRAMES_LIMIT))
    except BaseException as failure:  # noqa: BLE001 - user classes take part in the formatting
        return (
            f"{type_name(error)}: {message_of(error)}\n"
            f"(Its traceback could not be formatted: {type_name(failure)}.)\n"
        )
    return bounded(text, TEXT_LIMIT)


def bounded(text: str, limit: int) -> str:
    """Return *text*, or its beginning and end, with a note of what is left out between them."""
    if len(text) <= limit:
        return text
    head, tail = limit // 2, limit // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[-tail:]}"


def _safe_text(value: object) -> str:
    try:
        return str(value)
    except BaseException as failure:  # noqa: BLE001 - `__str__` of a user's class
        return f"<str() of {type(value).__name__} failed with {type(failure).__name__}>"


def _trim(error: BaseException) -> None:
    """Remove Kinetic's frames from the tracebacks of *error*, its causes, contexts and members."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < _CHAIN_LIMIT:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
        frames: list[TracebackType] = []
        trace = current.__traceback__
        while trace is not None:
            frames.append(trace)
            trace = trace.tb_next
        first = next((i for i, frame in enumerate(frames) if not _is_kinetic(frame)), None)
        if first is None:
            # All frames are Kinetic's: they matter only for an unexpected error.
            first = len(frames) if isinstance(current, KineticError) else 0
        frames = frames[first:]
        # Kinetic's signal handler at the end does not matter either.
        while frames and _is_kinetic(frames[-1]) and not _is_kinetic(frames[0]):
            frames.pop()
        if frames:
            frames[-1].tb_next = None
        current.__traceback__ = frames[0] if frames else None


def _is_kinetic(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] in _KINETIC


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Iterate over *error* and what it was raised because of."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
