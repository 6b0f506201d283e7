"""Why jobs do not run or have failed, seen on a real cluster that is given every cause at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.manifests.job import JobSpec, job_manifest
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.labels import APP, APP_VALUE, of_job
from kinetic_k8s.manifests.pod import MountedFile, Resources, SecretVariable
from kinetic_k8s.manifests.spec import WorkloadSpec
from kinetic_k8s.manifests.volumes import FuseMount, fuse_volumes
from kinetic_k8s.manifests.workload import workload_manifest
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.diagnosis import diagnosis_of, event_fields
from kinetic_k8s.reading.status import State, status_of

Make = Callable[..., JobSpec]
Manifest = dict[str, Any]
SMALL = Resources(cpu="50m", memory="64Mi")

CAUSES: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    # What is wrong with the pod → the cause, a part of its reason, a part of the remedy.
    "no-node": (
        {"accelerator": parse_accelerator("h100"), "resources": Resources()},
        ("no-node", "didn't match Pod's node affinity/selector", "gke-accelerator=nvidia-h100-80gb"),
    ),
    "no-room": (
        {"resources": Resources(cpu="900"), "overrides": {}},
        ("insufficient", "Insufficient cpu", "requests 900 of cpu"),
    ),
    "image": (
        {"image": "kinetic.test/no-such-image:1"},
        ("image", "not found", "kinetic.test/no-such-image:1"),
    ),
    "image-name": ({"image": "Kinetic:1"}, ("image-name", "couldn't parse image name", "capital letters")),
    "secret": (
        {"environment_secret": "not-there"},
        ("missing-object", "The Secret 'not-there' does not exist", "correct its name in pod_overrides"),
    ),
    "key": (
        {"secret_variables": (SecretVariable(variable="K", secret="kinetic-other", key="key"),)},
        ("missing-object", "The Secret 'kinetic-other' does not exist", "Create it"),
    ),
    "config-map": (
        {"files": (MountedFile(config_map="kn-runner-x", key="r.py", path="/app/r.py"),)},
        ("missing-object", "The ConfigMap 'kn-runner-x' does not exist", "Submit the job again"),
    ),
    "driver": (
        {"volumes": fuse_volumes([FuseMount(name="data-d0", bucket="b", path="/data")])},
        ("volume", "gcsfuse.csi.storage.gke.io not found", "Enable the Cloud Storage FUSE CSI driver"),
    ),
    "account": (
        {"service_account": "kinetic"},
        ("service-account", 'serviceaccount "kinetic" not found', "create serviceaccount kinetic"),
    ),
    "no-program": (
        {"command": ("python3x", "-c", "pass")},
        ("no-program", "The image has no program 'python3x'", "python3x on its PATH"),
    ),
    "memory": (
        {"command": ("python3", "-c", "b'x' * 300_000_000"), "resources": SMALL},
        ("out-of-memory", "its limit of 64Mi", "try memory='128Mi'"),
    ),
}  # fmt: skip


def diagnose(cluster: ApiServer, spec: WorkloadSpec) -> Diagnosis | None:
    """Diagnose a job from its workload, its pods, and at most two lists of events."""
    workload = cluster.get(spec.kind, spec.name)
    if workload is None:
        return None
    pods = cluster.list("Pod", labels=of_job(spec.pod.job_id))
    events = [
        event
        for fields in event_fields(workload, pods)
        for event in cluster.list("Event", fields=fields)
    ]
    return diagnosis_of(workload, pods, events)


def test_each_cause_is_named_with_the_clusters_words_and_a_remedy(
    cluster: ApiServer, a_job: Make
) -> None:
    specs = {}
    for name, (wrong, _) in CAUSES.items():
        specs[name] = a_job("pass", **{"grace": timedelta(seconds=1), **wrong})
        cluster.create(job_manifest(specs[name]))
    found: dict[str, Diagnosis | None] = {}
    missing = set(CAUSES)

    # Some causes are reported by events only.
    kinds = [Watched(kind=kind) for kind in ("Pod", "Job", "Event")]
    with Watch(cluster, kinds) as watch:
        while missing:
            assert watch.wait(120), {name: found[name] for name in missing}
            found |= {name: diagnose(cluster, specs[name]) for name in missing}
            missing = {
                name
                for name, (_, (cause, *_)) in CAUSES.items()
                if (seen := found[name]) is None or seen.cause != cause
            }
    for spec in specs.values():
        cluster.delete("Job", spec.name)

    for name, (_, (_, reason, remedy)) in CAUSES.items():
        diagnosis = found[name]
        assert diagnosis is not None
        assert reason in diagnosis.reason
        assert remedy in diagnosis.remedy, diagnosis


@pytest.mark.parametrize(
    ("object_", "cause", "expected"),
    [
        ({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
         "spec": {"hard": {"pods": "0"}}}, "quota", "exceeded quota: none"),
        (
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "small"},
                "spec": {"limits": [{"type": "Container", "max": {"memory": "32Mi"}}]},
            },
            "limit-range",
            "maximum memory usage per Container is 32Mi",
        ),
        (None, "pod-security", 'violates PodSecurity "restricted:latest"'),
    ],
)  # fmt: skip
def test_what_keeps_a_namespace_from_having_pods_is_named(
    bed: Any,
    cluster: ApiServer,
    a_job: Make,
    object_: dict[str, Any] | None,
    cause: str,
    expected: str,
    request: pytest.FixtureRequest,
) -> None:
    spec = a_job("pass")
    name = spec.name
    policy = {} if object_ else {"pod-security.kubernetes.io/enforce": "restricted"}
    namespaces = "api/v1/namespaces"
    bed.ask("POST", namespaces, body={"metadata": {"name": name, "labels": policy}})
    request.addfinalizer(lambda: bed.ask("DELETE", f"{namespaces}/{name}"))
    if object_ is not None:
        bed.ask("POST", bed.path_of(object_["kind"].lower(), name), body=object_)
    own = cluster.in_namespace(name)
    own.create(job_manifest(spec))

    found: Diagnosis | None = None
    with Watch(own, [Watched(kind="Event")]) as watch:
        while found is None or found.cause in ("pod-creation", "service-account"):
            assert watch.wait(60), found
            found = diagnose(own, spec)

    assert found.cause == cause
    assert expected in found.reason
    assert found.remedy


def test_a_suspended_job_and_one_whose_pod_is_gone_say_so(cluster: ApiServer, a_job: Make) -> None:
    suspended = replace(a_job("pass"), suspended=True)
    deleted = a_job("import time; time.sleep(600)", grace=timedelta(seconds=1))
    for spec in (suspended, deleted):
        cluster.create(job_manifest(spec))
    causes = {}
    with Watch(
        cluster, [Watched(kind=kind, labels=f"{APP}={APP_VALUE}") for kind in ("Pod", "Job")]
    ) as watch:
        while causes.get(deleted.name) != "pod-gone":
            assert watch.wait(60), causes
            for pod in cluster.list("Pod", labels=of_job(deleted.pod.job_id)):
                if pod["status"]["phase"] == "Running":
                    cluster.delete("Pod", pod["metadata"]["name"], grace=0)
            causes = {
                spec.name: found.cause
                for spec in (suspended, deleted)
                if (found := diagnose(cluster, spec)) is not None
            }

    assert causes == {suspended.name: "suspended", deleted.name: "pod-gone"}


AUTOSCALER = {
    # In the words of GKE's autoscaler.
    "stock-out": (
        "FailedScaleUp",
        "Node scale up in zones us-east5-a associated with this pod failed: GCE out of resources. "
        "Pod is at risk of not being scheduled.",
    ),
    "scaling-up": ("TriggeredScaleUp", "pod triggered scale-up: [{…/gke-c-np1-grp 0->2 (max: 2)}]"),
    "no-node": (
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector",
    ),
}


def test_the_autoscalers_events_stand_beside_the_schedulers_words(
    cluster: ApiServer, a_job: Make
) -> None:
    specs = {
        cause: a_job("pass", accelerator=parse_accelerator("h100"), resources=Resources())
        for cause in AUTOSCALER
    }
    for spec in specs.values():
        cluster.create(job_manifest(spec))
    found: dict[str, Diagnosis | None] = {}
    with Watch(cluster, [Watched(kind="Pod"), Watched(kind="Event")]) as watch:
        for cause, spec in specs.items():
            # There may be nodes of other tests, which have taints.
            while (why := diagnose(cluster, spec)) is None or why.cause not in ("no-node", "taint"):
                assert watch.wait(60), (cause, why)
    for cause, (reason, message) in AUTOSCALER.items():
        [pod] = cluster.list("Pod", labels=of_job(specs[cause].pod.job_id))
        cluster.create(an_event(pod, reason, message))
        found[cause] = diagnose(cluster, specs[cause])
        cluster.delete("Job", specs[cause].name)

    for cause, (_, message) in AUTOSCALER.items():
        diagnosis = found[cause]
        assert diagnosis is not None
        assert diagnosis.cause == cause
        assert "nodes are available" in diagnosis.reason
        assert message in diagnosis.reason


def an_event(pod: Manifest, reason: str, message: str) -> Manifest:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "autoscaler-"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "cluster-autoscaler"},
    }


def test_of_two_hosts_the_one_that_waits_and_the_one_that_ended_first_are_named(
    cluster: ApiServer, a_job: Make, two_hosts: Callable[..., JobSetSpec]
) -> None:
    wait = two_hosts("import time; time.sleep(600)", resources=Resources(cpu="50m", memory="13Gi"))
    crash = two_hosts(
        "import os, time\n"
        "time.sleep(2)\n"
        "os._exit(139) if os.environ['KINETIC_HOST_INDEX'] == '1' else time.sleep(600)"
    )
    found = {}
    for spec, until in (
        (wait, (State.PENDING, "1 of 2 hosts run; host 1 waits.")),
        (crash, (State.FAILED, "")),
    ):
        cluster.create(workload_manifest(spec))
        labels = of_job(spec.pod.job_id)
        with Watch(
            cluster, [Watched(kind=kind, labels=labels) for kind in ("Pod", "JobSet")]
        ) as watch:
            while not is_in(cluster, spec, *until) or (why := diagnose(cluster, spec)) is None:
                assert watch.wait(90), f"{spec.name} is not {until}"
        found[spec.name] = why.reason
        cluster.delete("JobSet", spec.name)

    assert found[wait.name].startswith("Host 1: No node has room for the pod: 0/")
    assert found[crash.name] == "Host 1: The container ended with exit code 139 (SIGSEGV)."


def is_in(cluster: ApiServer, spec: WorkloadSpec, state: State, reason: str) -> bool:
    workload = cluster.get(spec.kind, spec.name)
    found = status_of(workload, cluster.list("Pod", labels=of_job(spec.pod.job_id)))
    return found.state is state and reason in found.reason


@pytest.fixture
def two_hosts(a_job: Make, slice_of_two: str) -> Callable[..., JobSetSpec]:
    """Return what describes a job on two hosts, which may share the test bed's node with other jobs."""

    def make(program: str, **pod: Any) -> JobSetSpec:
        job = a_job(
            program, accelerator=parse_accelerator(slice_of_two), grace=timedelta(seconds=2), **pod
        )
        return JobSetSpec(name=job.name, pod=job.pod, topology=None)

    return make
