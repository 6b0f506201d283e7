"""What is known of a job whose supervisor is gone and that has no outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kinetic.backends.local.paths import JobFolder

REPORTING: Final = (
    "The job's supervisor died. Its runner is alive and may still report the result: "
    "that is waited for."
)

NEVER_STARTED: Final = "The submitting process was killed before it started the job: nothing of it ran. Submit it again."


def last_words(folder: JobFolder, before_start: bool) -> str:
    """Return how the supervisor of the job in *folder* ended, as far as is known.

    *before_start*: no runner was started.
    """
    said = ""
    try:
        lines = Path(folder.supervisor_log).read_text(errors="replace").strip().splitlines()
        said = f" Its last words: {lines[-1]}" if lines else ""
    except FileNotFoundError:
        pass
    if before_start and not said:
        return "The submitting process or the supervisor ended before the job was started."
    return f"The job's supervisor died: it was killed, or the machine went down.{said}"
