"""Ages of jobs, in the unit that a person would use."""

from __future__ import annotations

from datetime import UTC, datetime


def age_of(created_at: str, now: float) -> float | None:
    """Return the seconds since *created_at* (ISO 8601), or None where it is no time."""
    try:
        created = datetime.fromisoformat(created_at)
    except ValueError:
        return None
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    # Clocks of two machines differ a little; nothing is younger than now.
    return max(0.0, now - created.timestamp())


def spoken(seconds: float | None) -> str | None:
    """Return *seconds* as `42s`, `5m`, `3h` or `12d`."""
    if seconds is None:
        return None
    for unit, size, below in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * below:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // 86400)}d"
