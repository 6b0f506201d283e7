import pytest

from kinetic.local.verdict import HostEnd, deciding, other_failures, worth_a_retry


def end(
    host: int,
    reason: str,
    *,
    code: int = 1,
    first: bool = False,
    error: str = "",
    finished_at: float = 0.0,
) -> HostEnd:
    return HostEnd(
        host,
        reason == "returned",
        reason,  # type: ignore[arg-type]
        0 if reason == "returned" else code,
        first=first,
        error=error,
        finished_at=finished_at,
    )


LOST = "jax.errors.JaxRuntimeError"


@pytest.mark.parametrize(
    ("ends", "host", "others"),
    [
        ([end(0, "returned"), end(1, "returned")], 0, ()),
        ([end(0, "returned"), end(1, "exception")], 1, ()),
        ([end(0, "exception"), end(1, "exception"), end(2, "returned")], 0, (1,)),
        ([end(0, "terminated"), end(1, "exception", first=True)], 1, ()),
        # A host out of memory makes the others lose it: they abort, or raise that a peer died.
        ([end(0, "killed"), end(1, "killed", first=True)], 1, (0,)),
        ([end(0, "exception"), end(1, "killed", first=True)], 1, (0,)),
        # An exception explains more than a survivor that aborted because of it.
        ([end(0, "killed"), end(1, "exception", first=True)], 1, (0,)),
        # The survivor may even be the first that is seen, but for one that only lost it, too.
        ([end(0, "killed", code=134, first=True), end(1, "exception")], 1, (0,)),
        ([end(0, "exception", error=LOST), end(1, "killed", code=134, first=True)], 1, (0,)),
        ([end(0, "killed", code=134, first=True), end(1, "killed", code=137)], 1, (0,)),
        ([end(0, "exception", error=LOST, first=True), end(1, "killed", code=137)], 1, (0,)),
        # A host that the system preempts leaves the others without it.
        ([end(0, "exception", error=LOST), end(1, "terminated", first=True)], 1, (0,)),
        ([end(0, "killed", code=134), end(1, "terminated", first=True)], 1, (0,)),
        ([end(0, "exception", error="KeyError"), end(1, "terminated", first=True)], 0, ()),
        # What JAX raises may be no more than the end of another host.
        ([end(0, "exception", error=LOST), end(1, "exception", error="ValueError")], 1, (0,)),
        ([end(0, "exception", error=LOST), end(1, "killed")], 0, (1,)),
        (
            [
                end(0, "exception", error=LOST, finished_at=9.0),
                end(1, "exception", error=LOST, finished_at=8.0),
            ],
            1,
            (0,),
        ),
        ([end(0, "terminated"), end(1, "unreported")], 1, ()),
        ([end(0, "terminated"), end(1, "terminated")], 0, ()),
    ],
)
def test_the_failure_that_explains_the_others_counts(
    ends: list[HostEnd], host: int, others: tuple[int, ...]
) -> None:
    chosen = deciding(ends)
    assert chosen.host == host
    assert other_failures(ends, chosen) == others


@pytest.mark.parametrize(
    ("failure", "attempt", "retried"),
    [
        (end(0, "exception"), 1, True),
        (end(0, "exception"), 2, True),
        (end(0, "exception"), 3, False),
        (end(0, "killed", code=137), 1, True),
        (end(0, "timeout"), 1, True),
        (end(0, "exited"), 1, True),
        (end(0, "unreported", code=1), 1, True),
        (end(0, "exception", code=2), 1, False),
        (end(0, "unreported", code=2), 1, False),
        (end(0, "terminated", code=143), 1, False),
        (end(0, "returned"), 1, False),
    ],
)
def test_with_two_retries_three_attempts_are_made_of_what_may_go_better(
    failure: HostEnd, attempt: int, retried: bool
) -> None:
    assert worth_a_retry(failure, attempt=attempt, retries=2) is retried
