"""Printing: text, tables and JSON on stdout, notes and errors on stderr."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from kinetic.log_parts import LogPrinter

_COLOURS: Final = {
    "SUCCEEDED": "32",
    "FAILED": "31",
    "RUNNING": "36",
    "PENDING": "33",
    "NOT_FOUND": "2",
    "UNVERIFIED": "35",
}


class Output:
    """Prints the output of commands. Text is never interpreted as markup."""

    def __init__(
        self, stdout: TextIO | None = None, stderr: TextIO | None = None, colour: bool | None = None
    ) -> None:
        self.quiet = False
        """Whether only errors and warnings are printed on stderr."""
        self._stdout = stdout
        self._stderr = stderr
        self._colour = colour

    @property
    def stdout(self) -> TextIO:
        """The stream for data."""
        # Looked up each time, because test runners replace it.
        return self._stdout or sys.stdout

    @property
    def stderr(self) -> TextIO:
        """The stream for everything else."""
        return self._stderr or sys.stderr

    @property
    def colour(self) -> bool:
        """Whether stdout is a terminal, and colours are not disabled."""
        if self._colour is not None:
            return self._colour
        if not self.stdout.isatty():
            return False
        from kinetic.settings.settings import environment

        variables = environment()
        return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"

    def line(self, text: str, *, flush: bool = False) -> None:
        """Print one line as it is: the log of a job may contain colours."""
        _write(self.stdout, f"{text}\n")
        if flush:
            self.stdout.flush()

    def log_printer(self, *, flush: bool = False, all_hosts: bool = False) -> LogPrinter:
        """Return what prints the lines of a log; with *flush*, as they come."""
        from kinetic.log_parts import LogPrinter

        return LogPrinter(self.stdout, self.stderr, write=_write, flush=flush, all_hosts=all_hosts)

    def json(self, document: Any, *, lines: bool = False) -> None:
        """Print *document*; with *lines* on one line, for streams of documents."""
        # ASCII only, so that it stays JSON whatever the encoding of a pipe.
        self.line(json.dumps(document, indent=None if lines else 2, allow_nan=False), flush=lines)

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[object]], *, narrow: Sequence[str] = ()
    ) -> None:
        """Print aligned columns, never wrapped; control characters are escaped.

        Every row has a cell in every column (`-` for an empty one), so that `awk` finds the columns.

        Args:
            heads: The titles of the columns.
            rows: Their cells.
            narrow: What is done, in this order, until the rows fit a narrow terminal: the column of that title is
                left out; the first column, which has ids, is shortened to their beginnings and their ends instead.
        """
        cells = [[_cell(cell) for cell in row] for row in rows]
        room = shutil.get_terminal_size().columns
        columns = [[head, *column] for head, *column in zip(heads, *cells, strict=True)]
        for head in narrow if self.stdout.isatty() else ():
            over = sum(max(map(len, column)) + 2 for column in columns) - 2 - room
            if over <= 0:
                break
            if head == heads[0]:
                size = max(map(len, columns[0])) - over
                columns[0] = [_shortened(cell, max(size, _LEAST_ID)) for cell in columns[0]]
            else:
                columns = [column for column in columns if column[0] != head]
        heads, *cells = [list(row) for row in zip(*columns, strict=True)]
        heads = [head.upper() for head in heads]
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        for row in (heads, *cells):
            padded = (
                self._coloured(cell) + " " * (width - len(cell))
                for cell, width in zip(row, widths, strict=True)
            )
            self.line("  ".join(padded).rstrip())

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one pair on each line, without values that are None."""
        known = [(name, _cell(value)) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self.line(f"{name:<{width}}  {self._coloured(value)}")

    def note(self, text: str) -> None:
        """Print *text* on stderr unless it shall be quiet."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print *text*, an error or a warning, on stderr; its control characters are escaped."""
        with suppress(OSError):
            # A stdout that fails must not suppress the note.
            self.flush()
        from kinetic_payload.printable import printable

        self.stderr.write(f"{printable(text)}\n")
        self.stderr.flush()

    def failure(self, error: BaseException) -> None:
        """Print an error: message and hint if it is Kinetic's, the remote traceback if it is the user's."""
        from kinetic.errors import KineticError

        if isinstance(error, KineticError):
            self.warn(f"Error: {error.message}")
            for note in notes_of(error):
                self.warn(note)
            if error.hint:
                self.warn(error.hint)
        elif notes := notes_of(error):
            self.warn(f"Error: {headline_of(error)}")
            for note in notes:
                self.warn(note)
        elif isinstance(error, OSError) and error.strerror:
            self.warn(f"Error: {reason_of(error)}")
        else:
            self.warn(f"Error: Kinetic failed unexpectedly: {headline_of(error)}")
            self.warn("Please report it; `kinetic --debug …` shows where it happened.")

    def flush(self) -> None:
        """Flush stdout, so that it stays in order with the notes."""
        self.stdout.flush()

    def _coloured(self, cell: str) -> str:
        code = _COLOURS.get(cell)
        return f"\x1b[{code}m{cell}\x1b[0m" if code and self.colour else cell


def _write(stream: TextIO, text: str) -> None:
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        stream.write(text)
        return
    # Unbuffered (`python -u`): a text stream would ignore a partial write to a full disk or a closed
    # pipe.
    stream.flush()
    left = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while left:
        written = raw.write(left)
        if written is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left = left[written:]


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception; those of a failed job name the place of the failure."""
    return [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]


def reason_of(error: OSError) -> str:
    """Return why an operation of the system failed, as a sentence."""
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}."


def headline_of(error: BaseException) -> str:
    """Return `Type: message`, also if the exception cannot be converted to text."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__ may do anything
        message = "(its message cannot be shown)"
    return f"{name}: {message}" if message else name


def error_document(error: BaseException) -> dict[str, Any]:
    """Return a document about an exception: its class, its message and its notes."""
    kind, message = type(error), headline_of(error).partition(": ")[2]
    name = f"{kind.__module__}.{kind.__qualname__}"
    return {"type": name, "message": message, "notes": notes_of(error)}


def _cell(value: object) -> str:
    from kinetic_payload.printable import printable_line

    return "-" if value is None or value == "" else printable_line(str(value))


_LEAST_ID: Final = 9
"""Characters of a shortened id: an ellipsis and the digits at its end, by which a command finds the job."""


def _shortened(text: str, size: int) -> str:
    """Return *text*, an id, in *size* characters."""
    if len(text) <= size:
        return text
    end = text[-(_LEAST_ID - 1) :]
    return f"{text[: size - len(end) - 1]}…{end}"


def age_of(created_at: str, now: float) -> float | None:
    """Return the seconds since *created_at* (ISO 8601), or None if it is not a time."""
    try:
        created = datetime.fromisoformat(created_at)
    except ValueError:
        return None
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    # Clocks of two machines differ a little; an age is never negative.
    return max(0.0, now - created.timestamp())


def age_text(seconds: float | None) -> str | None:
    """Return the age of *seconds* in one unit, such as `5m`; None if it is not known."""
    from kinetic_payload.progress import duration_text

    return None if seconds is None else duration_text(seconds, coarse=True)


def seconds_text(seconds: float, *, so_far: bool = False) -> str:
    """Return the duration of *seconds*, such as `0.12s` or `3m 20s`; one that goes on as `3m 20s…`."""
    from kinetic_payload.progress import duration_text

    return (f"{seconds:.2f}s" if seconds < 10 else duration_text(seconds)) + "…" * so_far
