"""Plans: what exists, compared with what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinetic.errors import ConfigurationError
from kinetic.provisioning.apply import apply
from kinetic.provisioning.desired import ClusterOptions, place_of, resources_of
from kinetic.provisioning.plan import Actual, Plan, Resource, Step, plan_down, plan_up

RECORDED = Path(__file__).with_name("plans.txt")
FIXED = {"cluster": frozenset({"network"}), "bucket": frozenset({"location"})}


def wanted(**options: Any) -> list[Resource]:
    standard = options.get("standard", False)
    place = place_of("my-project", "us-central1-b", "demo", standard=standard)
    return resources_of(place, ClusterOptions(**options), "123", ["default", "team"])


def found(resources: list[Resource]) -> dict[str, Actual | None]:
    """Everything, as it is wanted."""
    return {each.id: Actual(settings=each.settings) for each in resources}


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Return *steps* so that each follows those that it needs."""
    left, done, ordered = list(steps), set[str](), list[Step]()
    ids = {step.resource.id for step in left}
    while left:
        ready = [step for step in left if not (set(step.after) & ids) - done]
        if not ready:
            raise ValueError(f"A circle: {', '.join(step.resource.id for step in left)}")
        ordered += ready
        done |= {step.resource.id for step in ready}
        left = [step for step in left if step not in ready]
    return ordered


def shown(plan: Plan) -> str:
    """Return the steps of *plan* in order, and its problems."""
    steps = [
        f"{step.action} {step.resource.id}{f' ({step.detail})' * bool(step.detail)}"
        for step in in_order(plan.steps)
    ]
    return "\n".join([*steps, *(f"problem: {each.message}" for each in plan.problems)])


def plans() -> Iterator[tuple[str, Plan]]:
    """Iterate over plans by what they are for."""
    full = wanted(accelerators=["v6e-8"], users=["user:ada@example.com"], addons=["kueue"])
    yield "up in an empty project, with a pool, a user and Kueue", plan_up(full, {}, FIXED)
    own = wanted(standard=True, network="corp", subnetwork="gpus", jobset=False)
    theirs = {each.id: each for each in own if each.name.endswith(("/corp", "/gpus"))}
    exists = found(list(theirs.values()))
    yield "up of a Standard cluster in a network of the user", plan_up(own, exists, FIXED)
    plain = wanted()
    (cluster,) = (each for each in plain if each.kind == "cluster")
    failed = {**found(plain), cluster.id: Actual(state="failed", detail="ERROR no addresses")}
    yield "up with a cluster that failed", plan_up(plain, failed, FIXED)
    outside = [each for each in plain if not each.inside]
    (jobs,) = (each for each in outside if each.id == "bucket my-project-kn-demo-jobs")
    actual = found(outside) | {jobs.id: Actual(settings=jobs.settings, detail="it holds objects")}
    yield "down, the bucket of jobs holds objects", plan_down(outside, actual)
    yield "down with the data", plan_down(outside, actual, delete_data=True)


def recorded() -> str:
    return "\n".join(f"# {what}\n{shown(plan)}\n" for what, plan in plans())


def test_plans_are_those_that_were_recorded() -> None:
    """Record changes that are meant by running this file as a script."""
    assert recorded() == RECORDED.read_text()


@pytest.mark.parametrize(
    ("actual", "action", "detail"),
    [
        (None, "create", ""),
        (Actual(settings={"network": "kn-demo", "fuse": True}), "change", "autopilot"),
        (Actual(state="failed", detail="ERROR no addresses"), "replace", "no addresses"),
        (Actual(state="leaving"), "replace", "being deleted"),
        ("as wanted", "keep", ""),
        ("changing", "wait", "RECONCILING"),
    ],
)
def test_the_state_of_a_cluster_decides_its_step(actual: Any, action: str, detail: str) -> None:
    resources = wanted()
    (cluster,) = (each for each in resources if each.kind == "cluster")
    if actual == "as wanted":
        actual = Actual(settings=cluster.settings)
    if actual == "changing":
        actual = Actual(settings=cluster.settings, state="changing", detail="RECONCILING")
    plan = plan_up(resources, {**found(resources), cluster.id: actual}, FIXED)
    (step,) = (each for each in plan.steps if each.resource == cluster)
    assert (step.action, not plan.problems) == (action, True)
    assert detail in step.detail


@pytest.mark.parametrize(
    ("kind", "actual", "message"),
    [
        ("bucket", Actual(ours=False, detail="of another project"), "another project"),
        ("cluster", Actual(settings={"network": "other"}), "network='other'"),
        ("repository", Actual(ours=False), "did not make it"),
    ],
)
def test_what_cannot_be_changed_or_is_not_ours_is_a_problem(
    kind: str, actual: Actual, message: str
) -> None:
    resources = wanted()
    one = next(each for each in resources if each.kind == kind)
    plan = plan_up(resources, {**found(resources), one.id: actual}, FIXED)
    (problem,) = plan.problems
    assert message in problem.message
    assert one.id not in {step.resource.id for step in plan.steps}


def test_a_network_of_the_user_must_exist_and_stays() -> None:
    resources = wanted(network="corp", subnetwork="gpus")
    missing = [each.message for each in plan_up(resources, {}, FIXED).problems]
    assert missing == [
        "There is no network global/networks/corp.",
        "There is no subnetwork regions/us-central1/subnetworks/gpus.",
    ]
    plan = plan_up(resources, found(resources), FIXED)
    assert not plan.problems
    assert not plan.changes


def test_down_deletes_the_last_first_and_keeps_what_holds_data() -> None:
    resources = [each for each in wanted() if not each.inside]
    actual = found(resources)
    jobs = next(each for each in resources if each.name.endswith("-jobs"))
    builds = next(each for each in resources if each.name.endswith("-builds"))
    network = next(each for each in resources if each.kind == "network")
    actual[jobs.id] = Actual(settings=jobs.settings, detail="it holds objects")
    actual[network.id] = Actual(ours=False)
    plan = plan_down(resources, actual)
    kept = {step.resource.name for step in plan.steps if step.action == "keep"}
    order = [step.resource.id for step in in_order(plan.changes)]
    assert kept == {jobs.name, network.name, "my-project"}
    assert order[-1] == builds.id
    for step in plan.changes:
        before = [each for each in step.after if each in order]
        assert all(order.index(each) < order.index(step.resource.id) for each in before)
    everything = plan_down(resources, actual, delete_data=True)
    assert jobs.id in {step.resource.id for step in everything.changes}


@pytest.mark.parametrize(
    ("location", "cluster", "standard", "message"),
    [
        ("us-central1", "demo", True, "is in a zone"),
        ("nowhere", "demo", False, "neither a region nor a zone"),
        ("us-central1", "Demo", False, "cannot be the name"),
        ("us-central1", "d" * 41, False, "cannot be the name"),
        ("us-central1", "d" * 21, False, "30 are allowed.\nIn this project .* 20 characters"),
    ],
)
def test_names_are_checked_before_anything_is_made(
    location: str, cluster: str, standard: bool, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){message}"):
        place_of("my-project", location, cluster, standard=standard)


def test_a_failed_step_ends_the_others_and_names_what_was_done() -> None:
    first, second, third = (Resource(kind="thing", name=name) for name in "abc")
    plan = Plan(
        (
            Step("create", first),
            Step("create", second, after=(first.id,)),
            Step("create", third, after=(second.id,)),
        )
    )
    reports: list[tuple[str, str]] = []

    def perform(step: Step) -> None:
        if step.resource == second:
            raise RuntimeError("no quota")

    with pytest.raises(RuntimeError, match="no quota") as caught:
        apply(plan, perform, report=lambda step, what: reports.append((step.resource.name, what)))
    assert caught.value.__notes__ == [
        "Done: 1 of 3 steps.",
        "Begun, and not seen to end: create thing b.",
        "Not done: create thing c.",
    ]
    assert reports == [("a", "begun"), ("a", "done"), ("b", "begun")]
    assert apply(replace(plan, steps=plan.steps[:1]), perform).done == [plan.steps[0]]


if __name__ == "__main__":
    RECORDED.write_text(recorded())
