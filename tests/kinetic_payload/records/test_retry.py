import pytest

from kinetic_payload.records.attempt_result import HostEnd, Result
from kinetic_payload.records.retry import Tally, another_attempt, tally_of


def end(reason: str, *, code: int = 1) -> HostEnd:
    succeeded = reason == "returned"
    return HostEnd(0, succeeded, reason, 0 if succeeded else code)  # type: ignore[arg-type]


def test_failures_and_disruptions_are_counted_apart_and_the_unknown_not_at_all() -> None:
    results: list[Result] = [
        *("disrupted", "failed", "unknown", "unknown", "unknown"),
        *("failed", "disrupted", "bad-node", "failed", "succeeded", "unknown"),
    ]

    assert tally_of(results) == Tally(failures=3, disruptions=2, bad_nodes=1)


@pytest.mark.parametrize(
    ("chosen", "failures", "disruptions", "follows"),
    [
        (end("exception"), 1, 9, True),
        (end("exception"), 2, 0, False),
        (end("killed", code=137), 0, 0, True),
        (end("timeout"), 0, 0, True),
        (end("exited"), 0, 0, True),
        (end("unreported", code=1), 0, 0, True),
        (end("exception", code=2), 0, 0, False),
        (end("unreported", code=2), 0, 0, False),
        (end("terminated", code=143), 9, 0, True),
        (end("terminated", code=143), 0, 1, False),
        (end("returned"), 0, 0, False),
    ],
)
def test_two_retries_are_of_failures_and_one_preemption_of_disruptions(
    chosen: HostEnd, failures: int, disruptions: int, follows: bool
) -> None:
    earlier = Tally(failures, disruptions)

    assert another_attempt(chosen, earlier, retries=2, preemptions=1) is follows
    assert another_attempt(chosen, earlier, retries=None, preemptions=None) is (
        not chosen.succeeded and chosen.exit_code != 2
    )


def test_three_bad_nodes_are_followed_by_another_attempt_and_count_as_nothing_else() -> None:
    bad = end("exception", code=4)

    for found in range(3):
        assert another_attempt(bad, Tally(bad_nodes=found), retries=0, preemptions=0)
    assert not another_attempt(bad, Tally(bad_nodes=3), retries=None, preemptions=None)
    assert another_attempt(end("exception"), Tally(bad_nodes=3), retries=1, preemptions=0)
