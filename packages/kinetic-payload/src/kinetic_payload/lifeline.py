"""Messages between a supervisor and its runners, over the descriptor that ends when the supervisor dies.

One byte each. A module of its own, as a supervisor starts runners before it imports anything that takes time.
"""

from __future__ import annotations

STOP = b"s"
"""To a runner: SIGTERM follows because the job is to end, so the function is stopped at once. A SIGTERM
that comes without this is the system's, which leaves the function time to save its state."""
OTHERS_GONE = b"o"
"""To the runner of the leader: all other hosts have ended."""
FAILED = b"f"
"""From a runner: its function has failed, and the other hosts may be stopped."""
