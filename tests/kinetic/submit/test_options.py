from __future__ import annotations

from datetime import timedelta

import pytest

from kinetic import Data
from kinetic.errors import InvalidRequestError
from kinetic.submit.images import ContainerImage
from kinetic.submit.options import RunOptions, check_options


def check(**given: object) -> RunOptions:
    return check_options(**{"accelerator": "cpu", **given})


def test_arguments_are_converted_to_the_types_of_a_request() -> None:
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
        zone="here",
    )

    assert checked.image == ContainerImage("bundled")
    assert checked.capture == ("HF_TOKEN", "WANDB_*")
    assert dict(checked.volumes) == {"/data": data}
    assert (checked.timeout, checked.retries, checked.preemptions) == (60.0, 2, 0)
    assert (checked.cpu, checked.memory, checked.shared_memory) == (0.5, 2**31, 2**30)
    assert dict(checked.labels) == {"team": "vision", "example.com/cost": ""}
    assert checked.overrides["zone"] == "here"


@pytest.mark.parametrize(
    ("accelerator", "spot", "expected"),
    [
        ("tpu-v5e-1", False, False),
        ("tpu-v5e-1", True, True),
        ("tpu-v5e-1:spot", False, True),
        ("gpu-l4:spot", True, True),
    ],
)
def test_spot_is_an_argument_or_a_suffix(accelerator: str, spot: bool, expected: bool) -> None:
    checked = check(accelerator=accelerator, spot=spot)

    assert checked.accelerator.spot is expected


def test_only_arguments_that_differ_from_the_defaults_count_as_given() -> None:
    defaults = check_options()

    assert defaults.given == {}
    assert set(defaults.overrides.values()) == {None}
    assert (defaults.timeout, defaults.retries, defaults.memory) == (None, 0, None)
    assert defaults.image == ContainerImage("default")
    assert check(retries=0, spot=True).given == {"accelerator": "cpu", "spot": True}


TEXT = ("base_image_repo", "zone", "project", "cluster", "backend", "namespace", "output_dir")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *(({name: 3}, f"{name}=3 is not text") for name in ("accelerator", *TEXT)),
        *(
            ({name: value}, f"{name}={value!r} is neither True nor False")
            for name in ("spot", "debug")
            for value in (1, "yes", None)
        ),
        *(({name: ["/data"]}, f"Write {name}={{") for name in ("volumes", "labels")),
        # One of each kind: their own modules have the rest.
        ({"accelerator": "tpu-v5litpod-4"}, "v5litepod"),
        ({"container_image": "bundle"}, "'bundled'"),
        ({"volumes": {"data": Data(".")}}, "absolute"),
        ({"capture_env_vars": "HF_TOKEN"}, "['HF_TOKEN']"),
        ({"timeout": 0}, "greater than zero"),
        ({"retries": -1}, "retries=-1 is not a count"),
        ({"preemptions": 1.5}, "preemptions=1.5 is not a count"),
        ({"memory": "16GB"}, "'16Gi'"),
        ({"shared_memory": "16GB"}, "'16Gi'"),
        ({"cpu": "many"}, "cores"),
        # Contradictions.
        ({"debug": True, "retries": 1}, "contradict"),
        ({"base_image_repo": "me/kinetic"}, "container_image='prebuilt'"),
        ({"base_image_repo": "me/kinetic", "container_image": "bundled"}, "'prebuilt'"),
        ({"memory": "1Gi", "shared_memory": "2Gi"}, "'2Gi' is more than memory='1Gi'"),
        ({"pod_overrides": ["spec"]}, "is not a dict"),
        ({"pod_overrides": {"spec": {"x": {1, 2}}}}, "pod_overrides is not JSON"),
        ({"pod_overrides": {"spec": {"priority": float("nan")}}}, "pod_overrides is not JSON"),
        ({"pod_overrides": {"spec": {"nodeName": "mine"}}}, "spec.nodeName belongs to Kinetic"),
        # Labels.
        *(
            ({"labels": {key: "c"}}, f"{key!r} cannot be the key")
            for key in ("a b", "-a", "", "x" * 64, "UPPER.example/a", "/a", 7)
        ),
        ({"labels": {"team": "a b"}}, "'a b' cannot be the value of the label 'team'"),
        ({"labels": {"team": None}}, "None cannot be the value"),
        ({"labels": {"team": "x" * 64}}, "cannot be the value"),
        *(
            ({"labels": {key: "mine"}}, "reserved for Kinetic")
            for key in (
                *("app", "kinetic.dev/job-id", "jobset.sigs.k8s.io/jobset-name"),
                *("alpha.jobset.sigs.k8s.io/exclusive-topology", "batch.kubernetes.io/job-name"),
            )
        ),
    ],
)
def test_an_argument_that_is_wrong_is_refused_with_a_hint(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check(**given)

    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "given",
    [
        {"base_image_repo": "me/kinetic", "container_image": "prebuilt"},
        {"memory": "1Gi", "shared_memory": "1Gi"},
        {"shared_memory": "2Gi"},
        {"debug": True, "retries": 0},
        {"labels": {"example.com/app": "a", "kinetic": "b", "kueue.x-k8s.io/queue-name": "c"}},
    ],
)
def test_an_argument_that_is_nearly_wrong_is_accepted(given: dict[str, object]) -> None:
    check(**given)


def test_pod_overrides_are_copied() -> None:
    given: dict[str, dict[str, object]] = {"spec": {}}
    checked = check(pod_overrides=given)
    given["spec"]["hostNetwork"] = True

    assert checked.pod_overrides == {"spec": {}}
    assert check(pod_overrides={}).pod_overrides == {}
