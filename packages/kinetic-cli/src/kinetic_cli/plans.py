"""Plans of `kinetic up` and `kinetic down`: their table, the question, and the progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinetic_cli.options import ask
from kinetic_cli.output import Output

if TYPE_CHECKING:
    from kinetic.provisioning.clusters import Prepared
    from kinetic.provisioning.plan import Step

_COSTS: Final = {
    "cluster": "$73 (the first one: $0)",
    "router": "$1 a node, $0.045 a GB",
    "bucket": "$0.02 a GB",
    "repository": "$0.10 a GB",
}
"""Of a month, in US dollars, 2026-11: https://cloud.google.com/kubernetes-engine/pricing, .../nat/pricing,
.../storage/pricing, .../artifact-registry/pricing."""
_TIMES: Final = {
    ("create", "cluster"): "5-10 min",
    ("replace", "cluster"): "10-20 min",
    ("delete", "cluster"): "5-10 min",
    ("create", "APIs"): "1 min",
    ("create", "JobSet"): "2 min",
    ("create", "LeaderWorkerSet"): "2 min",
    ("create", "Kueue"): "2 min",
    ("create", "node pool"): "2-5 min",
}
_CONTINUES: Final = "Run the command again: it continues."


def show_plan(output: Output, prepared: Prepared) -> None:
    """Print what will be done, and what stays."""
    plan, place = prepared.plan, prepared.place
    output.note(f"Cluster {place.cluster} in {place.location}, project {place.project}")
    rows = [
        (
            step.action,
            _TIMES.get((step.action, step.resource.kind)),
            _COSTS.get(step.resource.kind) if step.action in ("create", "replace") else None,
            step.resource.id,
            step.detail,
        )
        for step in plan.steps
    ]
    if rows:
        output.table(["action", "takes", "cost per month", "what", "why"], rows)
    if not plan.changes and not plan.problems:
        output.note("Nothing to do.")


def check_problems(output: Output, prepared: Prepared) -> None:
    """Print the problems of the plan.

    Raises:
        ProvisioningError: There are some.
    """
    from kinetic.errors import ProvisioningError

    first, *others = prepared.plan.problems or (None,)
    for problem in others:
        output.note(f"Error: {problem.message}\n{problem.hint}")
    if first is not None:
        raise ProvisioningError(first.message, hint=first.hint)


def apply_plan(output: Output, prepared: Prepared, question: str, *, yes: bool) -> None:
    """Ask, and perform the plan; each step is a line on stderr.

    Raises:
        InvalidRequestError: There is nobody to ask.
    """
    from kinetic.errors import KineticError

    if not yes:
        ask(question, undone="changed", preview="see the plan only")

    def report(step: Step, what: str) -> None:
        output.note(f"{'…' if what == 'begun' else '✓'} {step.action} {step.resource.id}")

    try:
        prepared.apply(report)
    except KeyboardInterrupt as error:
        for line in getattr(error, "__notes__", ()):
            output.note(line)
        output.note(_CONTINUES)
        raise
    except KineticError as error:
        begun = hasattr(error, "__notes__")
        if begun and "continues" not in (error.hint or ""):
            error.add_note(_CONTINUES)
        raise


def plan_document(prepared: Prepared) -> dict[str, Any]:
    """Return the plan as JSON; docs/cli.md describes it."""
    place, plan = prepared.place, prepared.plan
    return {
        "project": place.project,
        "location": place.location,
        "cluster": place.cluster,
        "steps": [
            {
                "action": step.action,
                "kind": step.resource.kind,
                "name": step.resource.name,
                "detail": step.detail or None,
            }
            for step in plan.steps
        ],
        "problems": [{"message": each.message, "hint": each.hint} for each in plan.problems],
    }
