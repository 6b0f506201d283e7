"""Plans: what exists, compared with what is wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kinetic.errors import ConfigurationError
from kinetic.provisioning.apply import apply
from kinetic.provisioning.desired import ClusterOptions, place_of, resources_of
from kinetic.provisioning.plan import Actual, Plan, Resource, Step, plan_down, plan_up

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


def test_nothing_exists_so_everything_is_created_after_what_it_needs() -> None:
    resources = wanted(accelerators=["v6e-8"])
    plan = plan_up(resources, {}, FIXED)
    lines = [f"{step.action} {step.resource.id}" for step in in_order(plan.steps)]
    jobs = "my-project-kn-demo-jobs"
    assert not plan.problems
    assert lines[0] == "create APIs my-project"
    assert lines[1] == "create bucket my-project-kn-demo-builds"
    assert sorted(lines[2:]) == sorted(
        f"create {each}"
        for each in (
            f"bucket {jobs}",
            "repository us/kn-demo",
            "service account kn-demo-nodes@my-project.iam.gserviceaccount.com",
            "service account kn-demo-builds@my-project.iam.gserviceaccount.com",
            "network global/networks/kn-demo",
            "subnetwork regions/us-central1/subnetworks/kn-demo",
            "router regions/us-central1/routers/kn-demo",
            "role roles/container.defaultNodeServiceAccount for kn-demo-nodes on the project",
            "role roles/artifactregistry.reader for kn-demo-nodes on the repository us/kn-demo",
            "role roles/artifactregistry.writer for kn-demo-builds on the repository us/kn-demo",
            "role roles/storage.objectUser for kn-demo-builds on the bucket my-project-kn-demo-builds",
            "role roles/logging.logWriter for kn-demo-builds on the project",
            "cluster us-central1/demo",
            f"role roles/storage.objectUser for ns/default/sa/kinetic on the bucket {jobs}",
            f"role roles/storage.objectUser for ns/team/sa/kinetic on the bucket {jobs}",
            "JobSet v0.12.0",
            "access for jobs in the namespace default",
            "access for jobs in the namespace team",
            "pool v6e-8",
        )
    )


def test_all_is_as_wanted_so_nothing_is_done() -> None:
    resources = wanted()
    assert plan_up(resources, found(resources), FIXED).changes == ()


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
