"""Perform the steps of a plan: in parallel where they do not need each other, until one fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty
from typing import Final

from kinetic.provisioning.plan import Plan, Step
from kinetic_payload.threads import Executor

_THREADS: Final = 8
_GRACE: Final = 30.0
"""Seconds that calls under way get after a failure or Ctrl-C."""
_TICK: Final = 5.0


@dataclass
class Progress:
    """How far a plan has come."""

    done: list[Step] = field(default_factory=list)
    begun: list[Step] = field(default_factory=list)
    """Those that were begun and did not end; the service may go on with them."""
    left: list[Step] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what was done and what was not, as sentences."""
        count = len(self.done) + len(self.begun) + len(self.left)
        named = (("Begun, and not seen to end", self.begun), ("Not done", self.left))
        return [
            f"Done: {len(self.done)} of {count} steps.",
            *(
                f"{what}: {', '.join(f'{s.action} {s.resource.id}' for s in steps)}."
                for what, steps in named
                if steps
            ),
        ]


def apply(
    plan: Plan,
    perform: Callable[[Step], None],
    *,
    report: Callable[[Step, str], None] = lambda _step, _what: None,
    tick: Callable[[], None] = lambda: None,
) -> Progress:
    """Perform the steps of *plan*, each after those that it needs.

    Args:
        plan: A plan without problems.
        perform: Performs one step, and returns once its effect is there. It is called in threads, whose pauses
            end when another step has failed.
        report: Called when a step begins (`begun`) and when it has ended (`done`).
        tick: Called every few seconds in this thread; what it raises ends the work.

    Raises:
        BaseException: The first failure, or Ctrl-C. Its notes say what was done and what was not.
    """
    progress = Progress(left=list(plan.changes))
    ended: list[Step] = []
    """Those whose threads are through, and that `collect` has not seen."""

    def run(step: Step) -> None:
        perform(step)
        ended.append(step)

    def collect() -> None:
        while ended:
            step = ended.pop(0)
            progress.begun.remove(step)
            progress.done.append(step)
            report(step, "done")

    try:
        with Executor(_THREADS, grace=_GRACE) as executor:
            while progress.left or progress.begun:
                missing = {step.resource.id for step in (*progress.left, *progress.begun)}
                for step in [s for s in progress.left if not missing & set(s.after)]:
                    progress.left.remove(step)
                    progress.begun.append(step)
                    report(step, "begun")
                    executor.submit(partial(run, step))
                with suppress(Empty):
                    executor.ended.get(_TICK)
                collect()
                for error in executor.failures:
                    raise error
                tick()
    except BaseException as error:
        with suppress(BaseException):
            collect()  # Those that ended meanwhile.
        for line in progress.lines():
            error.add_note(line)
        raise
    return progress
