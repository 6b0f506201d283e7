"""The state of a job, decided from its workload and pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kinetic.backends.backend import Ending
from kinetic.backends.gke.observation import Observer, explanation_of, observation_of
from kinetic.job_status import JobStatus
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.queue import QueuePlace
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_servers.fakes import FakeStore, a_record

PULLING = {"waiting": {"reason": "ErrImagePull", "message": "image: not found"}}
ENDED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


def a_job(*conditions: str, created: str | None = None, **spec: object) -> Manifest:
    true = [{"type": each, "status": "True"} for each in conditions]
    metadata = {"name": "kn-train-0123456", "uid": "1"}
    return {
        "metadata": metadata | ({"creationTimestamp": created} if created else {}),
        "spec": spec,
        "status": {"conditions": true},
    }


def a_pod(*, created: str | None = None, **state: object) -> Manifest:
    phase = "Running" if "running" in state else "Failed" if "terminated" in state else "Pending"
    container = {"name": "kinetic", "state": state}
    metadata = {"name": "pod", "uid": "2"}
    return {
        "metadata": metadata | ({"creationTimestamp": created} if created else {}),
        "spec": {"nodeName": "node", "containers": [{"name": "kinetic"}]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


def test_a_job_has_vanished_if_it_ended_and_no_pod_can_report_any_more() -> None:
    ending = observation_of(a_job("FailureTarget"), [a_pod(running={})])
    ended = observation_of(a_job("Failed"), [a_pod(**ENDED)])

    assert (ending.status, ending.ending) == (JobStatus.FAILED, Ending.REPORTED)
    assert (ended.status, ended.ending) == (JobStatus.FAILED, Ending.VANISHED)
    assert "memory" in explanation_of(ended, []).text
    assert not explanation_of(ended, []).trouble
    assert observation_of(None, []).status is JobStatus.NOT_FOUND


def test_a_failed_attempt_is_no_trouble_while_another_may_follow() -> None:
    seen = observation_of(a_job(), [a_pod(**ENDED)])

    assert seen.status is JobStatus.RUNNING
    assert explanation_of(seen, []).reason == seen.reason
    assert not explanation_of(seen, []).trouble


def test_a_pod_that_cannot_start_is_explained_before_and_after_the_first_attempt() -> None:
    waiting = observation_of(a_job(), [a_pod(**PULLING)])
    replaced = observation_of(a_job(), [a_pod(**PULLING)], begun=True)

    assert (waiting.status, replaced.status) == (JobStatus.PENDING, JobStatus.RUNNING)
    for seen in (waiting, replaced):
        assert "not found" in explanation_of(seen, []).reason
        assert explanation_of(seen, []).remedy
        assert explanation_of(seen, []).trouble


def test_an_observation_changes_only_with_what_keeps_a_container_from_starting() -> None:
    # A wait asks for an explanation when the observation changes.
    message = f'Back-off pulling image "i:1": ErrImagePull: {PULLING["waiting"]["message"]}'
    backing_off = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    creating, initializing, pulling, pausing = (
        observation_of(a_job(), [a_pod(**state)])
        for state in (
            {"waiting": {"reason": "ContainerCreating"}},
            {"waiting": {"reason": "PodInitializing"}},
            PULLING,
            backing_off,
        )
    )

    assert creating == initializing
    assert creating != pulling == pausing
    assert explanation_of(pulling, []).text == explanation_of(pausing, []).text


def test_a_suspended_job_is_pending_with_its_place_in_the_queue() -> None:
    ended = a_pod(terminated={"exitCode": 143})
    seen = observation_of(a_job(suspend=True), [ended], begun=True)
    place = QueuePlace("research", position=2, waiting=5, complete=True)

    assert seen.status is JobStatus.PENDING
    found = explanation_of(seen, [], queue=place)
    assert "waits in the queue 'research', at position 2 of 5" in found.reason


def test_a_job_without_a_pod_for_minutes_is_explained_with_a_command() -> None:
    job = a_job(created="2026-11-22T10:15:00Z")
    seen = observation_of(job, [])

    assert not explanation_of(seen, [], now=datetime(2026, 11, 22, 10, 16, tzinfo=UTC)).remedy
    found = explanation_of(seen, [], now=datetime(2026, 11, 22, 10, 25, tzinfo=UTC))
    assert "has not created a pod of the job for 10 min" in found.reason
    assert found.remedy.endswith("kubectl describe job kn-train-0123456")
    # The last pod of a job that has begun may have been gone for seconds only.
    between = observation_of(job, [], begun=True)
    found = explanation_of(between, [], now=datetime(2026, 11, 22, 10, 25, tzinfo=UTC))
    assert (found.text, found.trouble) == (between.reason, False)


def test_a_job_between_two_pods_is_running_if_it_has_claimed_an_attempt() -> None:
    begun, new = a_record(backend="gke"), a_record(job_id="cpu-f-20260101-000000-abcdef1")
    store = FakeStore()
    claim = Claim(job_id=begun.job_id, attempt=1, host=0, hostname="pod", pid=1, claimed_at=1.0)
    store.write(JobObjects(begun.job_id).claim(1, 0), encode(claim))
    no_cluster: Any = object()
    observer = Observer(no_cluster, store, None)

    def status(record: JobRecord, job: Manifest, *pods: Manifest) -> JobStatus:
        return observer.of(job, pods, record.job_id).status

    created = "2026-11-22T10:15:00Z"
    job, queued = a_job(created=created), a_job(created=created, suspend=True)
    first = a_pod(created="2026-11-22T10:15:01Z", **PULLING)
    second = a_pod(created="2026-11-22T10:15:40Z", **PULLING)
    assert [status(begun, job), status(begun, job, second)] == [JobStatus.RUNNING] * 2
    assert [status(new, job), status(new, job, second)] == [JobStatus.PENDING] * 2
    # No request is sent for each of a thousand jobs that wait in a queue or for a machine.
    before = store.journal.of("read *")
    assert [status(begun, queued), status(begun, job, first)] == [JobStatus.PENDING] * 2
    assert store.journal.of("read *") == before
