"""What a job on a cluster is made of, and what is refused, decided without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinetic.backends.backend import Environment, Launch
from kinetic.backends.gke.checks import check_request
from kinetic.backends.gke.connect import find_cluster
from kinetic.backends.gke.endpoint import storage_variables
from kinetic.backends.gke.host_log import LogSources
from kinetic.backends.gke.job_spec import SpecOptions, workload_spec
from kinetic.backends.gke.logs import JobLog
from kinetic.backends.gke.observation import explanation_of, observation_of
from kinetic.backends.gke.observer import Observer
from kinetic.backends.gke.watch import JobWatches
from kinetic.data import Data
from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.job_status import JobStatus
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic.target import Target
from kinetic.testing.fakes import FakeStore, a_record, create_outcome
from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import ClusterUnreachableError, UnknownClusterError, UnknownContextError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.manifests.workload import Form, workload_manifest
from kinetic_k8s.reading.queue import QueuePlace
from kinetic_payload.layout import JobObjects, end_marker
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.stores.store import Location

if TYPE_CHECKING:
    from kinetic_k8s.testing import GkeServer

BUCKET = Location("gs", "jobs")
PEM = "-----BEGIN CERTIFICATE-----\n"
IMAGE = "example.com/team/image:1"


def train() -> None: ...


def a_request(
    tmp_path: Path, captured: dict[str, str] | None = None, **options: object
) -> JobRequest:
    values = {"accelerator": "cpu", "container_image": IMAGE, "backend": "gke", **options}
    checked = check_options(**values)
    environ = {"KINETIC_KUBE_CONTEXT": "mine"}
    settings = resolve(checked.settings, environ=environ, user_home=tmp_path)
    return request_of(
        checked, train, settings, environ={"TOKEN": "hunter2", **(captured or {})}, cwd=tmp_path
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"volumes": {"/kinetic/data/d0": Data("gs://photos/2026")}}, "/kinetic/data"),
        ({"volumes": {"/kinetic/workspace/data": Data("gs://photos/2026")}}, "workspace"),
    ],
)
def test_what_does_not_run_on_a_cluster_yet_is_refused_with_what_does(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said) as caught:
        check_request(a_request(tmp_path, **options), BUCKET)

    assert caught.value.hint


def test_a_job_needs_a_bucket(tmp_path: Path) -> None:
    check_request(a_request(tmp_path), BUCKET)
    with pytest.raises(InvalidRequestError, match="Pods cannot reach the store /me/store"):
        check_request(a_request(tmp_path), Location("folder", "/me/store"))


def cluster_in(target: Target, folder: Path, **variables: str) -> Identity:
    settings = resolve({"home": str(folder)}, environ=variables, user_home=folder)
    return find_cluster(target, settings, variables).cluster.identity


def test_a_cluster_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No cluster is named") as caught:
        cluster_in(Target(), tmp_path)

    assert "KINETIC_PROJECT" in str(caught.value)
    assert "KINETIC_KUBE_CONTEXT" in str(caught.value)


def test_a_context_is_preferred_to_a_name_and_a_name_to_the_pods_own_cluster(
    tmp_path: Path, gke: GkeServer
) -> None:
    gke.add("kinetic-cluster", project="p", server="https://10.0.0.2", ca=PEM)
    api = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": f"https://{gke.endpoint}/"}
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.3"}
    context = {"KUBECONFIG": kubeconfig_in(tmp_path), "KINETIC_KUBE_CONTEXT": "here"}
    project = {"KINETIC_PROJECT": "p"}

    def server(**variables: str) -> str:
        settings = resolve({"home": str(tmp_path)}, environ=variables, user_home=tmp_path)
        target = Target.in_settings(settings)
        return cluster_in(target, tmp_path, **variables).server

    assert server(**api, **pod, **context, **project) == "https://10.0.0.1"
    assert server(**api, **pod, **project) == "https://10.0.0.2:443"
    with pytest.raises(UnknownClusterError, match="no service account"):
        server(**api, **pod)


def test_another_machine_may_call_the_cluster_by_another_context_or_by_its_name(
    tmp_path: Path, gke: GkeServer
) -> None:
    gke.add("kinetic-cluster", project="p", server="https://10.0.0.2", ca=PEM)
    target = Target(namespace="team", kube_context="there", project="defaults-of-the-submitter")
    here = {
        "KUBECONFIG": kubeconfig_in(tmp_path),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": f"https://{gke.endpoint}/",
    }

    with pytest.raises(UnknownContextError, match="there") as caught:
        cluster_in(target, tmp_path, **here)
    assert "KINETIC_KUBE_CONTEXT" in str(caught.value)

    by_context = cluster_in(target, tmp_path, **here, KINETIC_KUBE_CONTEXT="here")
    by_name = cluster_in(target, tmp_path, **here, KINETIC_PROJECT="p")
    assert (by_context.server, by_context.namespace) == ("https://10.0.0.1", "team")
    assert (by_name.server, by_name.namespace) == ("https://10.0.0.2:443", "team")


def kubeconfig_in(folder: Path) -> str:
    kubeconfig = {
        "contexts": [{"name": "here", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    return str(folder / "kubeconfig")


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:4443", "localhost:4443", "http://[::1]:1", "http://0.0.0.0:1",
        "https://bucket.localhost",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "variable", ["KINETIC_STORAGE_ENDPOINT", "STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE"]
)
def test_a_bucket_service_on_this_machines_loopback_is_refused(variable: str, address: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        storage_variables({variable: address})


def test_the_address_of_a_bucket_service_that_counts_here_counts_in_pods() -> None:
    known = {"STORAGE_EMULATOR_HOST": "http://10.0.0.1:1", "PATH": "/bin"}

    assert storage_variables({"PATH": "/bin"}) == {}
    assert storage_variables(known) == {"STORAGE_EMULATOR_HOST": "http://10.0.0.1:1"}
    own = {"KINETIC_STORAGE_ENDPOINT": "http://10.0.0.2:1"}
    assert storage_variables({**known, **own}) == own


def test_a_job_names_its_secrets_and_pins_what_it_runs(tmp_path: Path) -> None:
    request = a_request(
        tmp_path, capture_env_vars=["TOKEN"], cpu=0.5, memory="2Gi", retries=3, preemptions=4
    )
    record = a_record(
        k8s_name="kn-train-0123456", payload_digest="1" * 64, context_digest="2" * 64, retries=3,
        preemptions=4,
    )  # fmt: skip
    launch = Launch(record=record, request=request, environment=Environment(IMAGE))

    variables = {"STORAGE_EMULATOR_HOST": "x"}
    options = SpecOptions(form="job", store=BUCKET, runner=None, variables=variables)
    spec = workload_spec(launch, options)
    manifest = workload_manifest(spec)

    command = " ".join(spec.pod.command)
    template = manifest["spec"]["template"]["spec"]
    # The rest is for the runner's report, after a function that did not react to SIGTERM was killed.
    assert f"--grace {template['terminationGracePeriodSeconds'] - 5}" in command
    assert f"--payload-digest {'1' * 64} --context-digest {'2' * 64}" in command
    assert "--retries 3 --preemptions 4 --end-marker" in command
    assert "--attempt" not in command
    assert "hunter2" not in json.dumps(manifest)
    container = template["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "kn-train-0123456-env"}}]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "2Gi"}
    assert {each["name"] for each in container["env"]} >= {
        "KINETIC_SIGNING_KEY", "KINETIC_JOB_ID", "KINETIC_OUTPUT_DIR", "STORAGE_EMULATOR_HOST",
    }  # fmt: skip
    assert manifest["spec"]["backoffLimit"] == 3


@pytest.mark.parametrize(
    ("options", "form", "captured", "expected"),
    [
        ({"accelerator": "cpu"}, "job", {}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}),
        ({"accelerator": "l4"}, "job", {}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cuda,cpu"}),
        (
            {"accelerator": "v5p-8"},
            "jobset",
            {},
            {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "tpu,cpu"},
        ),
        (
            {"accelerator": "v5p-8", "backend": "pathways"},
            "pathways",
            {},
            {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "proxy"},
        ),
        # Those of the pod would hide those of the Secret.
        ({"accelerator": "l4"}, "job", {"KERAS_BACKEND": "torch"}, {"JAX_PLATFORMS": "cuda,cpu"}),
        ({"accelerator": "l4"}, "job", {"JAX_PLATFORMS": ""}, {"KERAS_BACKEND": "jax"}),
    ],
)
def test_captured_variables_count_before_those_of_the_accelerator(
    tmp_path: Path,
    options: dict[str, object],
    form: Form,
    captured: dict[str, str],
    expected: dict[str, str],
) -> None:
    request = a_request(tmp_path, captured, capture_env_vars=list(captured), **options)
    launch = Launch(
        record=a_record(k8s_name="kn-train-0123456"),
        request=request,
        environment=Environment(IMAGE),
    )
    manifest = workload_manifest(
        workload_spec(launch, SpecOptions(form=form, store=BUCKET, runner=None, variables={}))
    )

    (container,) = [each for each in containers_of(manifest) if each["name"] == "kinetic"]
    names = ("KERAS_BACKEND", "JAX_PLATFORMS")
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert {name: given[name] for name in names if name in given} == expected
    assert ("envFrom" in container) is bool(captured)


def containers_of(manifest: object) -> Iterator[dict[str, Any]]:
    """Iterate over all containers of a workload."""
    if isinstance(manifest, dict):
        yield from manifest.get("containers", ())
        for each in manifest.values():
            yield from containers_of(each)
    elif isinstance(manifest, list):
        for each in manifest:
            yield from containers_of(each)


def a_job(*conditions: str) -> Manifest:
    true = [{"type": each, "status": "True"} for each in conditions]
    return {
        "metadata": {"name": "kn-train-0123456", "uid": "1"},
        "spec": {},
        "status": {"conditions": true},
    }


def a_pod(**state: object) -> Manifest:
    phase = "Running" if "running" in state else "Failed" if "terminated" in state else "Pending"
    container = {"name": "kinetic", "state": state}
    return {
        "metadata": {"name": "pod", "uid": "2"},
        "spec": {"nodeName": "node", "containers": [{"name": "kinetic"}]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


PULLING = {"waiting": {"reason": "ErrImagePull", "message": "image: not found"}}
ENDED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


def test_a_job_has_vanished_when_it_ended_and_none_of_its_pods_can_report() -> None:
    ending = observation_of(a_job("FailureTarget"), [a_pod(running={})])
    ended = observation_of(a_job("Failed"), [a_pod(**ENDED)])

    assert (ending.status, ending.vanished) == (JobStatus.FAILED, False)
    assert (ended.status, ended.vanished) == (JobStatus.FAILED, True)
    assert "memory" in explanation_of(ended, []).text
    assert not explanation_of(ended, []).trouble


def test_an_attempt_that_failed_is_no_trouble_while_another_may_follow() -> None:
    seen = observation_of(a_job(), [a_pod(**ENDED)])

    assert seen.status is JobStatus.RUNNING
    assert explanation_of(seen, []).reason == seen.reason
    assert not explanation_of(seen, []).trouble


def test_what_keeps_a_job_from_running_is_said_once_it_has_run_as_well() -> None:
    waiting = observation_of(a_job(), [a_pod(**PULLING)])
    replaced = observation_of(a_job(), [a_pod(**PULLING)], begun=True)

    assert (waiting.status, replaced.status) == (JobStatus.PENDING, JobStatus.RUNNING)
    for seen in (waiting, replaced):
        assert "not found" in explanation_of(seen, []).reason
        assert explanation_of(seen, []).remedy
        assert explanation_of(seen, []).trouble
    assert observation_of(None, []).status is JobStatus.NOT_FOUND


def test_what_keeps_a_container_from_starting_is_explained_once_and_as_soon_as_it_is_known() -> (
    None
):
    creating = observation_of(a_job(), [a_pod(waiting={"reason": "ContainerCreating"})])
    pulling = observation_of(a_job(), [a_pod(**PULLING)])
    message = f'Back-off pulling image "i:1": ErrImagePull: {PULLING["waiting"]["message"]}'
    pausing = observation_of(
        a_job(), [a_pod(waiting={"reason": "ImagePullBackOff", "message": message})]
    )

    # A wait asks for an explanation if an observation differs from the one before.
    assert creating == observation_of(a_job(), [a_pod(waiting={"reason": "PodInitializing"})])
    assert creating != pulling == pausing
    assert explanation_of(pulling, []).text == explanation_of(pausing, []).text


class Kubelet:
    """A cluster with one pod, which has ended and whose log has lost its beginning."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.identity = Identity(server="https://cluster", namespace="default")

    def within(self, seconds: float) -> Kubelet:
        return self

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest:
        return a_pod(**ENDED)

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        return [a_pod(**ENDED)]

    def log(self, pod: str, container: str, **how: object) -> AbstractContextManager[Any]:
        stamped = [f"2026-11-22T10:15:00.{n:09d}Z {line}" for n, line in enumerate(self.lines)]
        again = [] if how.get("since") else stamped
        return nullcontext(Lines(again))

    def watch(self, kind: str, **how: object) -> AbstractContextManager[Any]:
        raise ClusterUnreachableError("Nothing changes any more.")


def a_log(
    record: JobRecord, cluster: Any, store: FakeStore, observer: Observer, watches: Any,
    signer: Signing = UNSIGNED,
) -> JobLog:  # fmt: skip
    sources = LogSources(
        record=record,
        cluster=cluster,
        store=store,
        signer=signer,
        observer=observer,
        watches=watches,
    )
    return JobLog(sources)


class Lines(list[str]):
    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 6, 7])
def test_a_followed_log_begins_in_the_bucket_where_the_pods_own_has_lost_its_beginning(
    kept: int,
) -> None:
    record, store = a_record(backend="gke"), FakeStore()
    names = JobObjects(record.job_id)
    whole = ["same", "same", "three", "same", "same", "three", "seven", "last"]
    store.write(f"{names.log_chunks(1, 0)}00000000", "".join(f"{x}\n" for x in whole).encode())
    create_outcome(store, Outcome(job_id=record.job_id, status="succeeded"), None)
    claim = Claim(job_id=record.job_id, attempt=1, host=0, hostname="pod", pid=1, claimed_at=1.0)
    store.write(names.claim(1, 0), encode(claim))
    cluster: Any = Kubelet([*whole[kept:], end_marker(record.job_id, 1, 0)])
    observer, watches = Observer(cluster, store, None), JobWatches(cluster)

    log = a_log(record, cluster, store, observer, watches)

    assert [line.text for line in log.follow(None)] == whole
    assert [line.text for line in log.follow(1)][-1:] == ["last"]


class LateKubelet(Kubelet):
    """A cluster with a job whose pod comes while its log is followed."""

    def __init__(self, job_id: str, lines: list[str], come: Callable[[], None]) -> None:
        super().__init__(lines)
        self._job_id = job_id
        self._come = come
        self._pods: list[Manifest] = []

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest:
        if kind != "Job":
            return super().get(kind, name, brief=brief)
        return {**a_job(), "metadata": {"uid": "1", "labels": {JOB_ID: self._job_id}}}

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        return self._pods

    @contextmanager
    def open(self, records: Sequence[JobRecord]) -> Iterator[LateKubelet]:
        yield self

    def wait(self, timeout: float) -> None:
        self._pods = [a_pod(**ENDED)]
        self._come()

    def wake(self, job_id: str = "") -> None:
        """Nobody waits."""


def test_an_outcome_that_the_job_did_not_sign_does_not_end_a_followed_log(tmp_path: Path) -> None:
    record, store, key_signer = a_record(backend="gke"), FakeStore(), KeySigner(KeyFile(tmp_path))
    outcome = Outcome(job_id=record.job_id, status="succeeded")
    names = JobObjects(record.job_id)
    store.write(names.outcome, encode(outcome))
    lines = ["first", "last", end_marker(record.job_id, 1, 0)]
    cluster: Any = LateKubelet(
        record.job_id, lines, lambda: create_outcome(store, outcome, key_signer)
    )
    observer = Observer(cluster, store, key_signer)

    log = a_log(record, cluster, store, observer, cluster, key_signer)

    assert [line.text for line in log.follow(None)] == lines[:2]


def test_a_list_knows_that_a_job_between_two_pods_has_begun() -> None:
    begun, new = a_record(backend="gke"), a_record(job_id="cpu-f-20260101-000000-abcdef1")
    store = FakeStore()
    claim = Claim(job_id=begun.job_id, attempt=1, host=0, hostname="pod", pid=1, claimed_at=1.0)
    store.write(JobObjects(begun.job_id).claim(1, 0), encode(claim))
    cluster: Any = Kubelet([])
    observer = Observer(cluster, store, None)

    def at(time: str, manifest: Manifest) -> Manifest:
        return {**manifest, "metadata": {**manifest["metadata"], "creationTimestamp": time}}

    job = at("2026-11-22T10:15:00Z", a_job())
    first = at("2026-11-22T10:15:01Z", a_pod(**PULLING))
    second = at("2026-11-22T10:15:40Z", a_pod(**PULLING))
    queued = {**job, "spec": {"suspend": True}}

    def seen(record: JobRecord, job: Manifest, *pods: Manifest) -> JobStatus:
        return observer.of(job, pods, record.job_id).status

    assert [seen(begun, job), seen(begun, job, second)] == [JobStatus.RUNNING] * 2
    assert [seen(new, job), seen(new, job, second)] == [JobStatus.PENDING] * 2
    # Nothing is asked for of a thousand jobs that wait in a queue, or for a machine.
    assert [seen(begun, queued), seen(begun, job, first)] == [JobStatus.PENDING] * 2


def test_a_job_in_a_queue_is_pending_with_its_place_although_its_last_pod_has_ended() -> None:
    suspended = {**a_job(), "spec": {"suspend": True}}
    seen = observation_of(suspended, [a_pod(terminated={"exitCode": 143})], begun=True)
    found = explanation_of(
        seen, [], queue=QueuePlace("research", position=2, waiting=5, complete=True)
    )

    assert seen.status is JobStatus.PENDING
    assert "waits in the queue 'research', at position 2 of 5" in found.reason


def test_a_job_for_which_nothing_changes_says_what_to_look_at_after_some_minutes() -> None:
    job = a_job()
    job["metadata"]["creationTimestamp"] = "2026-11-22T10:15:00Z"
    seen = observation_of(job, [])

    assert not explanation_of(seen, [], now=datetime(2026, 11, 22, 10, 16, tzinfo=UTC)).remedy
    found = explanation_of(seen, [], now=datetime(2026, 11, 22, 10, 25, tzinfo=UTC))
    assert "has not created a pod of the job for 10 min" in found.reason
    assert found.remedy.endswith("kubectl describe job kn-train-0123456")
    # Of a job that has run, the last pod may have been gone for seconds.
    between = observation_of(job, [], begun=True)
    found = explanation_of(between, [], now=datetime(2026, 11, 22, 10, 25, tzinfo=UTC))
    assert (found.text, found.trouble) == (between.reason, False)
