"""The log of a job on a cluster, read from its pods and from the bucket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.gke.host_log import BROKEN, LogSources
from kinetic.backends.gke.logs import JobLog, generations_of
from kinetic.backends.gke.observation import JobWatches, Observer
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import (
    ClusterUnreachableError,
    NotAuthenticatedError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.errors import (
    KineticError,
    StoreUnavailableError,
)
from kinetic_payload.layout import JobObjects, end_marker
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_servers.fakes import FakeStore, a_record, create_outcome

INDEX = "batch.kubernetes.io/job-completion-index"
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
SEPARATOR = "[kinetic] Attempt 1 ended. Attempt 2 begins."


class Lines:
    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines):
            yield f"2026-11-22T10:15:00.{number:09d}Z {line}"

    def close(self) -> None:
        """There is nothing to close."""


class Slice:
    """A cluster with the pods of a job on several hosts; *logs* returns the lines of each since a time."""

    identity = Identity(server="https://cluster", namespace="default")

    def __init__(
        self,
        logs: dict[int, Callable[[str | None], Iterable[str]]],
        restarts: int = 0,
        running: int = 0,
    ) -> None:
        self.logs = logs
        self.restarts = restarts
        self.running = running
        """How many more looks at a pod find it running."""

    def within(self, seconds: float) -> Slice:
        return self

    def pod(self, host: int) -> Manifest:
        self.running -= 1
        state = {"running": {}} if self.running >= 0 else {"terminated": {"exitCode": 0}}
        labels = {INDEX: str(host), RESTARTS: str(self.restarts)}
        return {
            "metadata": {"name": f"pod-{host}", "uid": str(host), "labels": labels},
            "status": {"containerStatuses": [{"name": "kinetic", "state": state}]},
        }

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        return self.pod(int(name.rpartition("-")[2]))

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        return [self.pod(host) for host in self.logs]

    def log(self, pod: str, container: str, **how: Any) -> AbstractContextManager[Lines]:
        return nullcontext(Lines(self.logs[int(pod.rpartition("-")[2])](how.get("since"))))

    def watch(self, kind: str, **how: object) -> AbstractContextManager[Any]:
        raise ClusterUnreachableError("Nothing changes any more.")


class StoredJob:
    """A job with its claims and its stored lines."""

    def __init__(self, store: FakeStore | None = None, **fields: Any) -> None:
        self.record = a_record(backend="gke", **{"workload": "Job", **fields})
        self.store = store or FakeStore()
        self.names = JobObjects(self.record.job_id)

    def claim(self, attempt: int = 1, host: int = 0) -> None:
        claimed = Claim(
            job_id=self.record.job_id,
            attempt=attempt,
            host=host,
            hostname=f"pod-{host}",
            pid=1,
            claimed_at=1.0,
        )
        self.store.write(self.names.claim(attempt, host), encode(claimed))

    def keep(self, *lines: str, attempt: int = 1, host: int = 0, chunk: int = 0) -> None:
        """Store lines as a chunk of the log."""
        name = f"{self.names.log_chunks(attempt, host)}{chunk:08d}"
        self.store.write(name, "".join(f"{line}\n" for line in lines).encode())

    def end(self, decided: int | None = None) -> None:
        ended = Outcome(job_id=self.record.job_id, status="succeeded", attempt=decided)
        create_outcome(self.store, ended, None)

    def marker(self, attempt: int = 1, host: int = 0) -> str:
        return end_marker(self.record.job_id, attempt, host)

    def log(self, cluster: Any, signer: Signing = UNSIGNED, watches: Any = None) -> JobLog:
        observer = Observer(cluster, self.store, signer if signer is not UNSIGNED else None)
        sources = LogSources(
            record=self.record,
            store=self.store,
            observer=observer,
            watches=watches or JobWatches(cluster),
        )
        return JobLog(sources)

    def followed(self, cluster: Any, *, decided: int | None = None) -> list[str]:
        """End the job and return the lines of its followed log."""
        self.end(decided)
        return [line.text for line in self.log(cluster).follow(None)]


class FailingStore(FakeStore):
    """A store whose reads raise the last of *errors*."""

    def __init__(self, errors: list[KineticError]) -> None:
        super().__init__()
        self.errors = errors

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        if self.errors:
            raise self.errors.pop()
        return super().read(name, start=start, end=end)


def test_a_slow_host_delays_no_other_and_each_line_names_its_host() -> None:
    job = StoredJob(hosts=2, workload="JobSet")
    finished = threading.Event()

    def slow(since: str | None) -> Iterator[str]:
        assert finished.wait(60)
        yield "late"
        yield job.marker(2, 1)

    def fast(since: str | None) -> Iterator[str]:
        yield from (f"line {number}" for number in range(3000))
        yield job.marker(2, 0)

    for host in (0, 1):
        job.claim(2, host)
    job.end()
    found = []
    for line in job.log(Slice({0: fast, 1: slow}, restarts=1)).follow(None):
        found.append(line)
        if line.text == "line 2999":
            finished.set()

    assert [line.text for line in found if line.host == 0] == [f"line {n}" for n in range(3000)]
    assert [(line.text, line.host, line.attempt) for line in found[3000:]] == [("late", 1, 2)]


@pytest.mark.parametrize(
    ("kind", "hosts", "restarts", "lines"),
    [("Job", 1, 0, ["1 0", SEPARATOR, "2 0"]), ("JobSet", 2, 1, ["2 0", "2 1"])],
)
def test_attempts_and_hosts_whose_pods_are_gone_are_read_from_the_bucket(
    kind: Any, hosts: int, restarts: int, lines: list[str]
) -> None:
    job = StoredJob(hosts=hosts, workload=kind)
    for attempt, host in ((1, 0), (2, 0), (2, 1)):
        job.claim(attempt, host)
        job.keep(f"{attempt} {host}", attempt=attempt, host=host)
    left = Slice({0: lambda _: [lines[0], job.marker()]}, restarts)

    assert job.followed(left, decided=2) == lines


def test_a_job_without_pods_has_its_log_in_the_bucket() -> None:
    job = StoredJob()
    job.claim()
    job.keep("first", "last")

    assert job.followed(Slice({})) == ["first", "last"]
    assert [line.text for line in job.log(Slice({})).read(None)] == ["first", "last"]


def test_a_log_that_is_followed_during_a_clean_up_is_read_to_its_end() -> None:
    job = StoredJob()
    for attempt in (1, 2):
        job.claim(attempt)
        job.keep(f"line of {attempt}", attempt=attempt)

    class CleanedUp(Slice):
        def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
            return None

        def list(self, kind: str, **selectors: object) -> list[Manifest]:
            return super().list(kind) if job.store.stat(job.names.outcome) else []

    def first(since: str | None) -> Iterator[str]:
        yield "line of 1"
        for info in list(job.store.list(job.names.prefix)):
            job.store.delete(info.name)
        yield job.marker()

    assert job.followed(CleanedUp({0: first}), decided=2) == ["line of 1", SEPARATOR, "line of 2"]


def test_a_log_that_broke_off_continues_from_the_bucket_which_is_reported_once() -> None:
    job, whole = StoredJob(), ["same"] * 4 + ["five", "six", "last"]
    job.claim()
    job.keep(*whole)

    def rotated(since: str | None) -> list[str]:
        # After the connection broke, the kubelet no longer has the lines in between.
        return whole[:2] if since is None else ["", "", "", "", "", "six"]

    texts = job.followed(Slice({0: rotated}, running=8))

    assert texts == [*whole[:2], BROKEN, *whole[2:]]


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 6, 7])
def test_lines_that_the_pod_has_lost_are_read_from_the_bucket(kept: int) -> None:
    job, whole = StoredJob(), ["same", "same", "three", "same", "same", "three", "seven", "last"]
    job.claim()
    job.keep(*whole)
    lines = [*whole[kept:], job.marker()]

    running = Slice({0: lambda since: whole[kept:]}, running=8)
    assert [line.text for line in job.log(running).read(None)] == whole
    ended = Slice({0: lambda since: [] if since else lines})
    assert job.followed(ended) == whole
    assert [line.text for line in job.log(ended).follow(1)][-1:] == ["last"]


def test_lines_that_only_the_pod_has_do_not_hide_lines_of_a_bucket_that_is_behind() -> None:
    own, whole = ["[kinetic] first", "[kinetic] second"], ["one", "two", "three", "four", "last"]
    broken = threading.Event()

    class Behind(FakeStore):
        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            if name == job.names.outcome and broken.is_set():  # The job has stored its last lines.
                job.keep("three", "four", "last", chunk=1)
            return super().read(name, start=start, end=end)

    job = StoredJob(Behind())
    job.claim()
    job.keep("one", "two")

    def rotated(since: str | None) -> list[str]:
        if since is None:
            return [*own, *whole[:3]]
        broken.set()
        return ["", "", "", "", "", "last"]

    texts = job.followed(Slice({0: rotated}, running=8))

    assert texts == [*own, *whole[:3], BROKEN, *whole[3:]]


def test_an_outcome_with_a_wrong_signature_does_not_end_a_followed_log(tmp_path: Path) -> None:
    job, signer = StoredJob(), KeySigner(KeyFile(tmp_path))
    outcome = Outcome(job_id=job.record.job_id, status="succeeded")
    job.store.write(job.names.outcome, encode(outcome))

    class Late(Slice):
        """Its pod appears, and the job reports, while its log is followed; it is its own watch."""

        def list(self, kind: str, **selectors: object) -> list[Manifest]:
            return super().list(kind) if self.restarts else []

        def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
            if kind != "Job":
                return super().get(kind, name)
            return {"metadata": {"uid": "1", "labels": {JOB_ID: job.record.job_id}}, "spec": {}}

        @contextmanager
        def open(self, records: Sequence[JobRecord]) -> Iterator[Late]:
            yield self

        def wait(self, timeout: float) -> None:
            self.restarts = 1
            create_outcome(job.store, outcome, signer)

        def wake(self, job_id: str = "") -> None:
            """Nothing waits."""

    cluster = Late({0: lambda since: ["first", "last", job.marker()]})

    log = job.log(cluster, signer, watches=cluster)

    assert [line.text for line in log.follow(None)] == ["first", "last"]


def a_pod_of(host: int, second: int, restarts: int | None = 0) -> PodView:
    labels = {INDEX: str(host)} | ({} if restarts is None else {RESTARTS: str(restarts)})
    created = f"2026-11-22T10:15:{second:02d}Z"
    uid = f"{restarts}-{host}-{second}"
    return PodView(
        {"metadata": {"name": uid, "uid": uid, "labels": labels, "creationTimestamp": created}}
    )


def test_a_jobset_that_was_suspended_and_resumed_is_another_attempt() -> None:
    before = [a_pod_of(0, 1), a_pod_of(1, 1)]
    resumed = [a_pod_of(1, 20), a_pod_of(0, 21)]
    restarted = [a_pod_of(0, 40, restarts=1), a_pod_of(1, 40, restarts=1)]

    found = generations_of(2, [*restarted, *resumed, *before])

    attempts = [{found[pod.uid] for pod in pods} for pods in (before, resumed, restarted)]
    assert [len(generations) for generations in attempts] == [1, 1, 1]
    assert max(attempts[0]) < max(attempts[1]) < max(attempts[2])


def test_a_replaced_pod_of_an_indexed_job_is_of_the_same_attempt() -> None:
    pods = [a_pod_of(0, 1, None), a_pod_of(1, 1, None), a_pod_of(1, 20, None)]

    assert len(set(generations_of(2, pods).values())) == 1
    assert len(set(generations_of(1, [a_pod_of(0, 1), a_pod_of(0, 9)]).values())) == 2


def test_a_log_continues_after_an_expired_login_and_an_outage_of_the_bucket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[KineticError] = []
    job = StoredJob(FailingStore(errors))
    job.claim()

    def lines(since: str | None) -> Iterator[str]:
        errors.extend([StoreUnavailableError("No answer."), NotAuthenticatedError("Log in.")])
        yield "a"
        yield job.marker()

    with caplog.at_level(logging.WARNING):
        assert job.followed(Slice({0: lines})) == ["a"]

    assert errors == []
    assert "Log in. The log goes on" in caplog.text
