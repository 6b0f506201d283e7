"""Ages of jobs."""

from __future__ import annotations

from datetime import UTC, datetime


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
