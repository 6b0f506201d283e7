"""Events of a job's objects: what they are about, and which are out of date."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from kinetic_k8s.manifests import Manifest

_TIMES: Final[tuple[Callable[[Manifest], Any], ...]] = (
    # Events of the scheduler have no count and no lastTimestamp.
    lambda event: (event.get("series") or {}).get("lastObservedTime"),
    lambda event: event.get("lastTimestamp"),
    lambda event: event.get("eventTime"),
    lambda event: event["metadata"].get("creationTimestamp"),
)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


def events_about(uid: str, events: Iterable[Manifest]) -> list[Manifest]:
    """Return the events about the object with this *uid*, the oldest first."""
    found = [event for event in events if (event.get("involvedObject") or {}).get("uid") == uid]
    return sorted(found, key=time_of)


def events_about_any(
    objects: Collection[tuple[str, str]], events: Iterable[Manifest]
) -> list[Manifest]:
    """Return the events about *objects*, given by kind and name, the oldest first.

    The Jobs of a JobSet are created again at each restart, with the same names and other uids.
    """
    about = ((event, event.get("involvedObject") or {}) for event in events)
    found = [event for event, it in about if (it.get("kind"), it.get("name")) in objects]
    return sorted(found, key=time_of)


def unresolved(
    events: Iterable[Manifest], reasons: Collection[str], *, until: Collection[str]
) -> list[Manifest]:
    """Return those of *events*, in their order, with one of *reasons*, if nothing in *until* came later.

    A cause that was removed leaves its event behind for an hour.
    """
    found: list[Manifest] = []
    for event in events:
        if event.get("reason") in until:
            found = []
        elif event.get("reason") in reasons:
            found.append(event)
    return found


def message_of(event: Manifest) -> str:
    """Return the event's message."""
    return str(event.get("message") or "").strip()


def time_of(event: Manifest) -> datetime:
    """Return when the event was last seen. Some of its times have fractions of a second, others have none."""
    for read in _TIMES:
        if found := read(event):
            return datetime.fromisoformat(str(found))
    return _NEVER
