"""What is wanted, compared with what exists: a plan, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

Action = Literal["create", "change", "replace", "wait", "delete", "keep"]
State = Literal["ready", "changing", "leaving", "failed"]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Something that a cluster for Kinetic consists of."""

    kind: str
    """Such as `bucket`; it says which edge reads and makes it."""
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What is wanted of it. Others of its settings are not looked at."""
    after: tuple[str, ...] = ()
    """The ids of those that must exist before it, and go after it."""
    adopted: bool = False
    """Whether it is used, and changed, also if somebody else made it."""
    inside: bool = False
    """Whether it is in the cluster, and goes with it."""
    given: bool = False
    """Whether it is the user's, and must exist."""
    kept: str = ""
    """Why `down` leaves it, if it holds data or has no end of its own; empty: it does not."""

    @property
    def id(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class Actual:
    """A resource as it was found."""

    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ours: bool = True
    """Whether Kinetic made it for this cluster: its labels, or its description, say so."""
    state: State = "ready"
    detail: str = ""
    """What the service says about a state that is not `ready`, or about what holds data."""


@dataclass(frozen=True)
class Step:
    """What is done with one resource."""

    action: Action
    resource: Resource
    detail: str = ""
    after: tuple[str, ...] = ()
    """The ids of the resources whose steps come before this one."""


@dataclass(frozen=True)
class Problem:
    """A reason not to begin."""

    message: str
    hint: str


@dataclass(frozen=True)
class Plan:
    """What will be done, and what stands in the way."""

    steps: tuple[Step, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def changes(self) -> tuple[Step, ...]:
        """The steps that do something."""
        return tuple(step for step in self.steps if step.action != "keep")


def plan_up(
    wanted: Sequence[Resource],
    actual: Mapping[str, Actual | None],
    fixed: Mapping[str, frozenset[str]],
) -> Plan:
    """Return what makes everything in *wanted* exist as it is wanted.

    Args:
        wanted: The resources.
        actual: By the id of a resource, what was found; None, or no entry: nothing.
        fixed: By kind, the settings that cannot be changed later.
    """
    steps: list[Step] = []
    problems: list[Problem] = []
    for resource in wanted:
        found = actual.get(resource.id)
        if resource.given:
            if found is None:
                problems.append(
                    Problem(
                        f"There is no {resource.kind} {resource.name}.",
                        "Check its name and its region. Without --network, Kinetic makes a network of its own.",
                    )
                )
            continue
        if found is not None and not found.ours and not resource.adopted:
            problems.append(foreign(resource, found))
            continue
        step = _step(resource, found)
        if found is not None and step.action == "change":
            wrong = [k for k in _differences(resource, found) if k in fixed.get(resource.kind, ())]
            if wrong:
                name = wrong[0]
                problems.append(
                    Problem(
                        f"The {resource.kind} {resource.name} has {name}={found.settings.get(name)!r}, and "
                        f"{resource.settings[name]!r} is wanted. That cannot be changed.",
                        "Ask for what it has, choose another name with --cluster, or remove it first with: kinetic down",
                    )
                )
                continue
        steps.append(step)
    return Plan(tuple(steps), tuple(problems))


def plan_down(
    wanted: Sequence[Resource],
    actual: Mapping[str, Actual | None],
    *,
    delete_data: bool = False,
) -> Plan:
    """Return what removes the resources of *wanted* that exist, the last ones first.

    Those that somebody else made are left. What holds data is deleted only with *delete_data*.
    """
    steps = []
    strangers = {
        each.id
        for each in wanted
        if (found := actual.get(each.id)) and not (found.ours or each.adopted)
    }
    for resource in reversed(wanted):
        found = actual.get(resource.id)
        if found is None:
            continue
        before = tuple(
            each.id for each in wanted if resource.id in each.after and actual.get(each.id)
        )
        if resource.id in strangers or (resource.adopted and strangers & {*resource.after}):
            steps.append(Step("keep", resource, "Kinetic did not make it, or what it is for"))
        elif resource.kept and (resource.kept != DATA or (found.detail and not delete_data)):
            steps.append(Step("keep", resource, resource.kept))
        else:
            if delete_data:
                resource = replace(resource, kept="")
            steps.append(Step("delete", resource, found.detail, before))
    return Plan(tuple(steps))


DATA: Final = "it holds what jobs wrote; --delete-data deletes it"
"""Why `down` leaves a bucket."""


def _step(resource: Resource, found: Actual | None) -> Step:
    if found is None:
        return Step("create", resource, after=resource.after)
    if found.state == "failed":
        detail = f"it failed: {found.detail or 'the service gives no reason'}"
        return Step("replace", resource, detail, resource.after)
    if found.state == "leaving":
        return Step("replace", resource, "it is being deleted", resource.after)
    different = _differences(resource, found)
    if found.state == "changing" and not different:
        return Step("wait", resource, found.detail, resource.after)
    if different:
        return Step("change", resource, ", ".join(different.values()), resource.after)
    return Step("keep", resource)


def _differences(resource: Resource, found: Actual) -> dict[str, str]:
    """Return the settings that are not as wanted, by name, as texts; a list may have more than what is wanted."""
    texts: dict[str, str] = {}
    for name, wanted in resource.settings.items():
        there = found.settings.get(name)
        if not isinstance(wanted, tuple):
            if there != wanted:
                texts[name] = f"{name}: {there} → {wanted}"
        elif more := [str(each) for each in wanted if each not in (there or ())]:
            texts[name] = f"{name}: {', '.join(more)}"
    return texts


def foreign(resource: Resource, found: Actual) -> Problem:
    """Return the problem that *resource* is somebody else's."""
    return Problem(
        f"The {resource.kind} {resource.name} exists, and Kinetic did not make it for this cluster"
        f"{f': {found.detail}' if found.detail else ''}.",
        "Choose another name for the cluster with --cluster, or remove it if nobody needs it.",
    )
