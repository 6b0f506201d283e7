"""The manifests of all forms, against their record and the schemas of Kubernetes.

`python tests/kinetic_k8s/manifests/test_workload.py` records them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.errors import UnsupportedWorkloadError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import PathwaysComponents, instance_type
from kinetic_k8s.manifests.job import IndexedJobSpec, JobSpec, host_service
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.names import environment_secret_name
from kinetic_k8s.manifests.pathways import LeaderWorkerSetSpec, PathwaysSpec
from kinetic_k8s.manifests.placement import accelerator_environment
from kinetic_k8s.manifests.pod import MountedFile, PodSpec, Resources, SecretVariable
from kinetic_k8s.manifests.spec import WorkloadSpec
from kinetic_k8s.manifests.volumes import fuse_volumes
from kinetic_k8s.manifests.workload import (
    checked_job,
    form_of,
)
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.stores.store import Location

RECORDED = Path(__file__).with_name("workloads.json")
NAME = "kn-trainstep12-0a1b2c3"
VERSIONS = ("1.33", "1.34", "1.35", "1.37")
JOB_ID = "gpu-l4-train-20261122-101500-0a1b2c3"
DIGEST = "0123456789abcdef" * 4

SMALL = JobSpec(
    name="kn-train-0a1b2c3",
    pod=PodSpec(
        job_id=JOB_ID,
        accelerator=parse_accelerator("cpu"),
        image="python:3.11",
        command=("python3", "train.py"),
    ),
)
SETS = DataRef(
    key="d0", kind="gcs", source="gs://sets/", is_dir=True, name="", fuse=True, mount="/data"
)
FULL = JobSpec(
    name="kn-train-0a1b2c3",
    retries=3,
    keep_for=timedelta(hours=1),
    suspended=True,
    pod=PodSpec(
        job_id=JOB_ID,
        accelerator=parse_accelerator("l4x2:spot"),
        image=f"europe-docker.pkg.dev/p/kn/bundled@sha256:{DIGEST}",
        command=("python3", "-u", "/app/remote_runner.py", "--job", JOB_ID),
        environment={"KERAS_BACKEND": "jax", "PRICE": "5$(each)"},
        environment_secret="kn-train-0a1b2c3-env",
        secret_variables=(
            SecretVariable(variable="KINETIC_SIGNING_KEY", secret="kinetic-key", key="key"),
        ),
        files=(
            MountedFile(config_map="kn-runner-0123", key="runner.py", path="/app/remote_runner.py"),
        ),
        resources=Resources(cpu="4", memory="16Gi", shared_memory="8Gi"),
        grace=timedelta(minutes=1),
        service_account="kinetic",
        volumes=fuse_volumes([SETS], Location("gs", "jobs")),
        labels={"team": "vision", "kueue.x-k8s.io/queue-name": "research"},
        about={"function": "train", "source": "train:main.<locals>.step"},
    ),
)
POD = PodSpec(
    job_id="tpu-v6e-16-train-20261122-101500-0a1b2c3",
    accelerator=parse_accelerator("v6e-16:spot"),
    image="python:3.11",
    command=("python3", "-u", "/app/remote_runner.py"),
    environment=accelerator_environment(parse_accelerator("v6e-16"), "gke"),
    environment_secret=environment_secret_name(NAME),
    service_account="kinetic",
    labels={"team": "vision"},
    about={"function": "train", "source": "train:main.<locals>.step"},
    overrides={"spec": {"priorityClassName": "low", "securityContext": {"fsGroup": 1000}}},
)
COMPONENTS = PathwaysComponents(scratch="gs://bucket/scratch")
OTHER_COMPONENTS = PathwaysComponents(
    scratch="gs://bucket/$scratch",
    server_image="registry.example/server:jax-0.10.0",
    proxy_image="registry.example/proxy:jax-0.10.0",
    manager=Resources(cpu="1"),
    proxy=Resources(memory="1Gi"),
    function=Resources(),
    worker=Resources(cpu="2", memory="4Gi"),
    head_selector={"cloud.google.com/gke-nodepool": "head"},
    head_tolerations=({"key": "head", "operator": "Exists"},),
    head_topology=None,
    worker_selector={"cloud.google.com/gke-nodepool": "slice"},
    worker_tolerations=({"key": "slice", "operator": "Exists"},),
)
ONE_HOST = replace(POD, accelerator=parse_accelerator("v5litepod-2x4"), overrides={})
SPECS: dict[str, WorkloadSpec] = {
    "job": FULL,
    "indexed job": IndexedJobSpec(name=NAME, pod=POD),
    "jobset": JobSetSpec(name=NAME, pod=POD),
    "jobset, one host": JobSetSpec(name=NAME, pod=ONE_HOST),
    "jobset, suspended, older, on any nodes": JobSetSpec(
        name=NAME, pod=POD, retries=3, suspended=True, distinguishes_exit_codes=False, topology=None
    ),
    "pathways": PathwaysSpec(name=NAME, pod=POD, components=COMPONENTS),
    "pathways, all settings": PathwaysSpec(
        name=NAME, pod=POD, components=OTHER_COMPONENTS, retries=3, suspended=True, topology=None
    ),
    "pathways, one host": PathwaysSpec(name=NAME, pod=ONE_HOST, components=COMPONENTS),
    "leaderworkerset": LeaderWorkerSetSpec(name=NAME, pod=POD, components=COMPONENTS),
    "leaderworkerset, suspended, one host": LeaderWorkerSetSpec(
        name=NAME, pod=ONE_HOST, components=OTHER_COMPONENTS, suspended=True
    ),
}


def rendered() -> dict[str, Manifest]:
    return {name: each.manifest() for name, each in {"small job": SMALL, **SPECS}.items()}


def core_parts(manifest: Manifest) -> Iterator[Manifest]:
    """Yield what schemas of Kubernetes itself describe in a workload."""
    spec, metadata = manifest["spec"], {"name": NAME}
    match manifest["kind"]:
        case "Job":
            yield manifest
            yield host_service({**manifest, "metadata": {**manifest["metadata"], "uid": "u1"}})
        case "JobSet":
            for each in spec["replicatedJobs"]:
                yield {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": metadata,
                    **each["template"],
                }
        case "LeaderWorkerSet":
            for name in ("leaderTemplate", "workerTemplate"):
                template = spec["leaderWorkerTemplate"][name]
                head = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata}
                yield {**head, "template": template}


def test_manifests_are_those_that_were_recorded() -> None:
    assert rendered() == json.loads(RECORDED.read_text())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_several_versions_accept_all_manifests(version: str) -> None:
    for manifest in rendered().values():
        for part in core_parts(manifest):
            kubernetes_validate.validate(part, version, strict=True)


def pod_templates(manifest: Manifest) -> list[Manifest]:
    return [
        part.get("template") or part["spec"]["template"]
        for part in core_parts(manifest)
        if part["kind"] != "Service"
    ]


@pytest.mark.parametrize(
    ("accelerator", "semantics", "served", "form"),
    [
        ("v6e-8", "gke", set(), "job"),
        ("v6e-16", "gke", {"JobSet"}, "jobset"),
        ("v6e-16", "gke", {"LeaderWorkerSet"}, "indexed-job"),
        ("v6e-8", "gke", {"JobSet"}, "jobset"),
        ("v6e-16", "pathways", {"JobSet", "LeaderWorkerSet"}, "pathways"),
        ("v5litepod-2x4", "pathways", {"LeaderWorkerSet"}, "pathways-lws"),
    ],
)
def test_the_form_of_a_job_fits_its_hosts_and_its_cluster(
    accelerator: str, semantics: Any, served: set[str], form: str
) -> None:
    assert form_of(parse_accelerator(accelerator), semantics, served) == form


def test_a_batch_is_one_workload_unless_its_inputs_need_jobsets() -> None:
    def form(accelerator: str, semantics: Any, *served: str) -> str:
        return form_of(parse_accelerator(accelerator), semantics, {*served}, batch=True)

    assert form("v6e-8", "gke", "JobSet") == form("v6e-8", "gke") == "batch"
    assert form("v6e-16", "gke", "JobSet") == "jobset"
    assert form("v6e-8", "pathways", "JobSet") == "pathways"
    for accelerator, semantics in (("v6e-16", "gke"), ("v6e-8", "pathways")):
        with pytest.raises(UnsupportedWorkloadError, match=r"A batch on .* needs JobSets"):
            form(accelerator, semantics, "LeaderWorkerSet")


@pytest.mark.parametrize(
    ("accelerator", "served", "why"),
    [
        ("l4", {"JobSet"}, "Pathways supports TPU slices only; got l4"),
        ("v5litepod-1", {"JobSet"}, "does not support v5litepod-1"),
        ("v3-32", {"JobSet"}, "does not support v3-32"),
        ("v6e-16", set(), "the cluster serves neither"),
    ],
)
def test_what_pathways_cannot_run_is_refused(accelerator: str, served: set[str], why: str) -> None:
    with pytest.raises(UnsupportedWorkloadError, match=why):
        form_of(parse_accelerator(accelerator), "pathways", served)


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [
        ("v4-8", "tpuv4:2x2x2"),
        ("v5litepod-2x4", "tpuv5e1t:2x4"),
        ("v5litepod-16", "tpuv5e:4x4"),
        ("v5p-8", "tpuv5:2x2x2"),
        ("v6e-8", "tpuv6e1t:2x4"),
        ("v6e-256", "tpuv6e:16x16"),
        ("tpu7x-8", "tpu7x:2x2x2"),
    ],
)
def test_the_instance_type_names_machine_and_topology(accelerator: str, expected: str) -> None:
    assert instance_type(parse_accelerator(accelerator)) == expected


@pytest.mark.parametrize("form", ["pathways", "leaderworkerset"])
def test_the_components_of_pathways_are_not_overridden(form: str) -> None:
    overrides = {"spec": {"initContainers": [{"name": "pathways-rm", "image": "mine"}]}}
    spec = replace(SPECS[form], pod=replace(POD, overrides=overrides))

    with pytest.raises(InvalidRequestError, match=r"spec.initContainers\[pathways-rm\] belongs"):
        spec.manifest()


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ({"nodeSelector": {"a": "b"}}, "pathways_worker_selector"),
        ({"tolerations": [{"operator": "Exists"}]}, "pathways_worker_tolerations"),
    ],
)
def test_fields_that_select_nodes_are_refused_under_pathways(
    overrides: dict[str, Any], setting: str
) -> None:
    pod = replace(POD, overrides={"spec": overrides})

    with pytest.raises(InvalidRequestError, match="the head or the workers") as caught:
        PathwaysSpec(name=NAME, pod=pod, components=COMPONENTS).manifest()

    assert setting in (caught.value.hint or "")


def test_more_shared_memory_than_the_default_of_pathways_names_that_default() -> None:
    pod = replace(POD, resources=Resources(shared_memory="120Gi"))
    spec = PathwaysSpec(name=NAME, pod=pod, components=COMPONENTS)

    with pytest.raises(InvalidRequestError, match="more than memory='100G'"):
        spec.manifest()
    enough = Resources(memory="130Gi", shared_memory="120Gi")
    replace(spec, pod=replace(pod, resources=enough)).manifest()


@pytest.mark.parametrize("name", SPECS)
def test_the_pod_with_the_function_can_be_checked_as_a_job(name: str) -> None:
    manifest = rendered()[name]

    job = checked_job(manifest)

    if manifest["kind"] == "Job":
        assert job is None
        return
    assert job is not None
    kubernetes_validate.validate(job, VERSIONS[-1], strict=True)
    (template,) = pod_templates(job)
    assert template["metadata"]["labels"]["kinetic.dev/role"] == "host"
    assert template["spec"]["restartPolicy"] == "Never"
    (same,) = [each for each in pod_templates(manifest) if each["metadata"] == template["metadata"]]
    assert {**same["spec"], "restartPolicy": "Never"} == template["spec"]


def test_the_hosts_of_an_indexed_job_share_a_node_pool_beside_the_users_own_affinity() -> None:
    mine = {"labelSelector": {"matchLabels": {"team": "vision"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [mine]}}
    pod = replace(POD, overrides={"spec": {"affinity": affinity}})

    (template,) = pod_templates(IndexedJobSpec(name=NAME, pod=pod).manifest())

    terms = template["spec"]["affinity"]["podAffinity"]
    (own, added) = terms["requiredDuringSchedulingIgnoredDuringExecution"]
    selected = own["labelSelector"]["matchLabels"]
    assert own["topologyKey"] == "cloud.google.com/gke-nodepool"
    assert selected.items() <= template["metadata"]["labels"].items(), (
        "the first pod selects itself"
    )
    assert added == mine


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(rendered(), indent=1) + "\n")
