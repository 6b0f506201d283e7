from __future__ import annotations

from datetime import timedelta

import pytest

from kinetic import Data
from kinetic.attempt_limits import AttemptLimits
from kinetic.errors import InvalidRequestError
from kinetic.resources import Resources
from kinetic.submit.images import ContainerImage
from kinetic.submit.options import RunOptions, check_options


def check(**given: object) -> RunOptions:
    return check_options(**{"accelerator": "cpu", **given})


def refused(**given: object) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check(**given)
    assert caught.value.hint
    return str(caught.value)


def test_without_arguments_nothing_is_limited() -> None:
    checked = check()

    assert checked == RunOptions(
        given={"accelerator": "cpu"},
        settings=checked.settings,
        accelerator=checked.accelerator,
        image=ContainerImage("default"),
        capture=(),
        volumes={},
        spot=False,
        debug=False,
        limits=AttemptLimits(),
        resources=Resources(),
        labels={},
    )


def test_arguments_come_in_the_terms_of_what_runs_them() -> None:
    data = Data(".")

    checked = check(
        container_image="bundled",
        capture_env_vars=["HF_TOKEN", "WANDB_*"],
        volumes={"/data/": data},
        timeout=timedelta(minutes=1),
        retries=2,
        preemptions=0,
        cpu="500m",
        memory="2Gi",
        shared_memory="1Gi",
        labels={"team": "vision", "example.com/cost": ""},
    )

    assert checked.image == ContainerImage("bundled")
    assert checked.capture == ("HF_TOKEN", "WANDB_*")
    assert dict(checked.volumes) == {"/data": data}
    assert checked.limits == AttemptLimits(timeout=60.0, retries=2, preemptions=0)
    assert checked.resources == Resources(cpu=0.5, memory=2**31, shared_memory=2**30)
    assert dict(checked.labels) == {"team": "vision", "example.com/cost": ""}


@pytest.mark.parametrize(
    ("accelerator", "spot", "expected"),
    [
        ("tpu-v5e-1", False, False),
        ("tpu-v5e-1", True, True),
        ("tpu-v5e-1:spot", False, True),
        ("gpu-l4:spot", True, True),
    ],
)
def test_spot_may_be_said_in_either_place(accelerator: str, spot: bool, expected: bool) -> None:
    checked = check(accelerator=accelerator, spot=spot)

    assert checked.spot is expected
    assert checked.accelerator.spot is expected


def test_only_what_differs_from_the_defaults_was_given() -> None:
    assert check_options().given == {}
    assert check(retries=0, spot=True).given == {"accelerator": "cpu", "spot": True}


def test_arguments_that_settings_can_stand_in_for_are_kept_for_them() -> None:
    assert set(check().settings.values()) == {None}
    assert check(zone="here").settings["zone"] == "here"


@pytest.mark.parametrize(
    "name",
    ["base_image_repo", "zone", "project", "cluster", "backend", "namespace", "output_dir"],
)
def test_what_is_text_is_text(name: str) -> None:
    assert f"{name}=3 is not text" in refused(**{name: 3})


@pytest.mark.parametrize("name", ["spot", "debug"])
@pytest.mark.parametrize("value", [1, "yes", None])
def test_yes_and_no_are_booleans(name: str, value: object) -> None:
    assert f"{name}={value!r} is neither True nor False" in refused(**{name: value})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["spec"], "is not a dict"),
        ({"spec": {"x": {1, 2}}}, "pod_overrides: spec.x is not JSON"),
        ({"spec": {"priority": float("nan")}}, "spec.priority is not JSON"),
        ({"spec": {"nodeName": "mine"}}, "spec.nodeName belongs to Kinetic"),
    ],
)
def test_pod_overrides_are_an_object_of_json(given: object, said: str) -> None:
    assert said in refused(pod_overrides=given)


def test_pod_overrides_are_those_of_the_moment_they_were_given() -> None:
    given: dict[str, dict[str, object]] = {"spec": {}}
    checked = check(pod_overrides=given)
    given["spec"]["hostNetwork"] = True

    assert checked.pod_overrides == {"spec": {}}
    assert check(pod_overrides={}).pod_overrides == {}


@pytest.mark.parametrize("name", ["volumes", "labels"])
def test_what_is_a_dict_is_refused_as_a_list_with_an_example(name: str) -> None:
    assert f"Write {name}={{" in refused(**{name: ["/data"]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"debug": True, "retries": 1}, "contradict"),
        ({"base_image_repo": "me/kinetic"}, "container_image='prebuilt'"),
        ({"base_image_repo": "me/kinetic", "container_image": "bundled"}, "'prebuilt'"),
        ({"memory": "1Gi", "shared_memory": "2Gi"}, "'2Gi' is more than memory='1Gi'"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, object], said: str) -> None:
    assert said in refused(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"base_image_repo": "me/kinetic", "container_image": "prebuilt"},
        {"memory": "1Gi", "shared_memory": "1Gi"},
        {"shared_memory": "2Gi"},
        {"debug": True, "retries": 0},
    ],
)
def test_what_only_looks_like_a_contradiction_passes(given: dict[str, object]) -> None:
    check(**given)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"a b": "c"}, "'a b' cannot be the key"),
        ({"-a": "c"}, "'-a' cannot be the key"),
        ({"": "c"}, "'' cannot be the key"),
        ({"x" * 64: "c"}, "cannot be the key"),
        ({"UPPER.example/a": "c"}, "cannot be the key"),
        ({"/a": "c"}, "cannot be the key"),
        ({7: "c"}, "7 cannot be the key"),
        ({"team": "a b"}, "'a b' cannot be the value of the label 'team'"),
        ({"team": None}, "None cannot be the value"),
        ({"team": "x" * 64}, "cannot be the value"),
        ({"app": "mine"}, "reserved for Kinetic"),
        ({"kinetic.dev/job-id": "mine"}, "reserved for Kinetic"),
        ({"jobset.sigs.k8s.io/jobset-name": "x"}, "reserved for Kinetic"),
        ({"alpha.jobset.sigs.k8s.io/exclusive-topology": "x"}, "reserved for Kinetic"),
        ({"batch.kubernetes.io/job-name": "x"}, "reserved for Kinetic"),
    ],
)
def test_labels_are_what_kubernetes_takes(labels: dict[str, str], said: str) -> None:
    assert said in refused(labels=labels)


def test_a_label_with_a_prefix_is_not_ours() -> None:
    for key in ("example.com/app", "kinetic", "kueue.x-k8s.io/queue-name"):
        assert check(labels={key: "mine"}).labels == {key: "mine"}
