"""Messages between a supervisor and its runners, over the lifeline, which closes when the supervisor ends.

Each message is one byte. They are in a module of their own because a supervisor starts runners before any
slower import.
"""

from __future__ import annotations

STOP = b"s"
"""To a runner: SIGTERM follows because the job must end, so the function is stopped at once. A SIGTERM
without this message comes from the system, and leaves the function time to save its state."""
OTHERS_GONE = b"o"
"""To the runner of the leader: all other hosts have ended."""
FAILED = b"f"
"""From a runner: its function has failed, and the other hosts may be stopped."""
