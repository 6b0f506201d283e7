"""The log of a job on a cluster, put together from pods and bucket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from kinetic.backends.backend import LogLine
from kinetic.backends.gke.host_log import BROKEN, LogSources, Patience, position_after, skip_past
from kinetic.backends.gke.logs import JobLog, generations_of
from kinetic.backends.gke.observer import Observer
from kinetic.backends.gke.watch import JobWatches
from kinetic.notices import Logins
from kinetic.testing.fakes import FakeStore, a_record, create_outcome
from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import (
    ClusterUnreachableError,
    NotAuthenticatedError,
    NotPermittedError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.errors import (
    KineticError,
    RecordError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.layout import JobObjects, end_marker
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED

INDEX = "batch.kubernetes.io/job-completion-index"
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"


class Lines:
    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def close(self) -> None:
        """There is nothing to close."""


class Slice:
    """A cluster with the pods of a job on several hosts, and their logs."""

    identity = Identity(server="https://cluster", namespace="default")

    def __init__(self, logs: dict[int, Any], restarts: int = 0) -> None:
        self.logs = logs
        self.restarts = restarts
        self.running = 0
        """How many more looks at a pod find it running."""

    def within(self, seconds: float) -> Slice:
        return self

    def pod(self, host: int) -> Manifest:
        self.running -= 1
        state = {"running": {}} if self.running >= 0 else {"terminated": {"exitCode": 0}}
        return {
            "metadata": {
                "name": f"pod-{host}",
                "uid": str(host),
                "labels": {INDEX: str(host), RESTARTS: str(self.restarts)},
            },
            "status": {"containerStatuses": [{"name": "kinetic", "state": state}]},
        }

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest:
        return self.pod(int(name.rpartition("-")[2]))

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        return [self.pod(host) for host in self.logs]

    def log(self, pod: str, container: str, **how: Any) -> AbstractContextManager[Lines]:
        lines = self.logs[int(pod.rpartition("-")[2])]
        return nullcontext(Lines(stamped(lines(how.get("since")))))

    def watch(self, kind: str, **how: object) -> AbstractContextManager[Any]:
        raise ClusterUnreachableError("Nothing changes any more.")


def stamped(lines: Any) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"2026-11-22T10:15:00.{number:09d}Z {line}"


def followed(
    record: JobRecord, cluster: Any, store: FakeStore, *, decided: int | None = None
) -> Iterator[LogLine]:
    return log_of(record, cluster, store, decided=decided).follow(None)


def log_of(
    record: JobRecord, cluster: Any, store: FakeStore, *, decided: int | None = None
) -> JobLog:
    ended = Outcome(job_id=record.job_id, status="succeeded", attempt=decided)
    create_outcome(store, ended, None)
    return a_log(record, cluster, store)


def a_log(record: JobRecord, cluster: Any, store: FakeStore) -> JobLog:
    observer, watches = Observer(cluster, store, None), JobWatches(cluster)
    sources = LogSources(
        record=record, cluster=cluster, store=store, signer=UNSIGNED, observer=observer,
        watches=watches,
    )  # fmt: skip
    return JobLog(sources)


def claim(store: FakeStore, record: JobRecord, attempt: int, host: int) -> None:
    claimed = Claim(
        job_id=record.job_id,
        attempt=attempt,
        host=host,
        hostname=f"pod-{host}",
        pid=1,
        claimed_at=1.0,
    )
    store.write(JobObjects(record.job_id).claim(attempt, host), encode(claimed))


def test_a_slow_host_delays_no_other_and_each_line_names_its_host() -> None:
    record, store = a_record(backend="gke", hosts=2, workload="JobSet"), FakeStore()
    heard = threading.Event()

    def slow(since: str | None) -> Iterator[str]:
        assert heard.wait(60)
        yield "late"
        yield end_marker(record.job_id, 2, 1)

    def fast(since: str | None) -> Iterator[str]:
        yield from (f"line {number}" for number in range(3000))
        yield end_marker(record.job_id, 2, 0)

    for host in (0, 1):
        claim(store, record, 2, host)
    found = []
    for line in followed(record, Slice({0: fast, 1: slow}, restarts=1), store):
        found.append(line)
        if line.text == "line 2999":
            heard.set()

    assert [line.text for line in found if line.host == 0] == [f"line {n}" for n in range(3000)]
    assert [(line.text, line.host, line.attempt) for line in found[3000:]] == [("late", 1, 2)]


@pytest.mark.parametrize(
    ("kind", "hosts", "restarts", "lines"),
    [
        ("Job", 1, 0, ["1 0", "[kinetic] Attempt 1 ended. Attempt 2 begins.", "2 0"]),
        ("JobSet", 2, 1, ["2 0", "2 1"]),
    ],
)
def test_the_log_of_an_attempt_or_a_host_whose_pod_is_gone_comes_from_the_bucket(
    kind: Any, hosts: int, restarts: int, lines: list[str]
) -> None:
    record, store = a_record(backend="gke", hosts=hosts, workload=kind), FakeStore()
    for attempt, host in ((1, 0), (2, 0), (2, 1)):
        claim(store, record, attempt, host)
        chunk = f"{JobObjects(record.job_id).log_chunks(attempt, host)}00000000"
        store.write(chunk, f"{attempt} {host}\n".encode())
    left = Slice({0: lambda _: [lines[0], end_marker(record.job_id, 1, 0)]}, restarts)

    assert [line.text for line in followed(record, left, store, decided=2)] == lines


def test_a_job_whose_pods_were_never_seen_has_its_log_in_the_bucket() -> None:
    record, store = a_record(backend="gke", workload="Job"), FakeStore()
    store.write(f"{JobObjects(record.job_id).log_chunks(1, 0)}00000000", b"first\nlast\n")
    claim(store, record, 1, 0)
    log = log_of(record, Slice({}), store)

    assert [line.text for line in log.read(None)] == ["first", "last"]
    assert [line.text for line in log.follow(None)] == ["first", "last"]


def test_the_rest_of_a_log_comes_from_the_bucket_after_the_job_was_cleaned_up() -> None:
    record, store = a_record(backend="gke", workload="Job"), FakeStore()
    for attempt in (1, 2):
        claim(store, record, attempt, 0)
        chunk = f"{JobObjects(record.job_id).log_chunks(attempt, 0)}00000000"
        store.write(chunk, f"line of {attempt}\n".encode())

    class CleanedUp(Slice):
        def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
            return None

        def list(self, kind: str, **selectors: object) -> list[Manifest]:
            return super().list(kind) if store.stat(JobObjects(record.job_id).outcome) else []

    def first(since: str | None) -> Iterator[str]:
        yield "line of 1"
        for info in list(store.list(JobObjects(record.job_id).prefix)):
            store.delete(info.name)
        yield end_marker(record.job_id, 1, 0)

    texts = [line.text for line in followed(record, CleanedUp({0: first}), store, decided=2)]

    assert texts == ["line of 1", "[kinetic] Attempt 1 ended. Attempt 2 begins.", "line of 2"]


def test_a_log_that_broke_off_goes_on_from_the_bucket_which_is_reported_once() -> None:
    record, store = a_record(backend="gke", workload="Job"), FakeStore()
    whole = ["same"] * 4 + ["five", "six", "last"]
    names = JobObjects(record.job_id)
    store.write(f"{names.log_chunks(1, 0)}00000000", "".join(f"{x}\n" for x in whole).encode())
    claim(store, record, 1, 0)

    def rotated(since: str | None) -> list[str]:
        # After the connection broke, the kubelet no longer has the lines in between.
        return whole[:2] if since is None else ["", "", "", "", "", "six"]

    cluster = Slice({0: rotated})
    cluster.running = 8

    texts = [line.text for line in followed(record, cluster, store)]

    assert texts == [*whole[:2], BROKEN, *whole[2:]]


def test_the_log_of_a_running_pod_that_lost_its_beginning_is_read_from_the_bucket() -> None:
    record, store = a_record(backend="gke", workload="Job"), FakeStore()
    whole = ["same", "same", "three", "same", "same", "six"]
    names = JobObjects(record.job_id)
    store.write(f"{names.log_chunks(1, 0)}00000000", "".join(f"{x}\n" for x in whole).encode())
    claim(store, record, 1, 0)
    cluster = Slice({0: lambda since: whole[3:]})
    cluster.running = 8

    assert [line.text for line in a_log(record, cluster, store).read(None)] == whole


@pytest.mark.parametrize(
    ("last", "count", "stored", "position"),
    [
        (["a", "b"], 2, ["a", "b", "c"], 2),
        (["x", "x"], 3, ["x"] * 6, 3),
        (["a", "b"], None, ["0", "a", "b", "c"], 3),
        (["a", "b"], 2, ["a"], 2),
        (["a", "b"], 9, ["0", "a", "b", "c", *"defghijk"], 3),
        (["a", "b"], 2, ["0", "1", "2"], None),
        (["x"], 3, ["x", "0", "1", "x", "2", "3", "4", "x"], 4),
    ],
)
def test_the_bucket_goes_on_after_the_last_line_that_was_read(
    last: list[str], count: int | None, stored: list[str], position: int | None
) -> None:
    lines = (LogLine(text) for text in stored)

    assert position_after(last, count, lines) == position


def a_pod_of(host: int, second: int, restarts: int | None = 0) -> PodView:
    labels = {INDEX: str(host)} | ({} if restarts is None else {RESTARTS: str(restarts)})
    created = f"2026-11-22T10:15:{second:02d}Z"
    uid = f"{restarts}-{host}-{second}"
    return PodView(
        {"metadata": {"name": uid, "uid": uid, "labels": labels, "creationTimestamp": created}}
    )


def test_pods_of_a_jobset_that_was_suspended_and_resumed_are_another_attempt() -> None:
    before = [a_pod_of(0, 1), a_pod_of(1, 1)]
    resumed = [a_pod_of(1, 20), a_pod_of(0, 21)]
    restarted = [a_pod_of(0, 40, restarts=1), a_pod_of(1, 40, restarts=1)]

    found = generations_of(2, [*restarted, *resumed, *before])

    attempts = [{found[pod.uid] for pod in pods} for pods in (before, resumed, restarted)]
    assert [len(generations) for generations in attempts] == [1, 1, 1]
    assert max(attempts[0]) < max(attempts[1]) < max(attempts[2])


def test_a_pod_that_replaces_one_host_of_an_indexed_job_is_of_the_same_attempt() -> None:
    pods = [a_pod_of(0, 1, None), a_pod_of(1, 1, None), a_pod_of(1, 20, None)]

    assert len(set(generations_of(2, pods).values())) == 1
    assert len(set(generations_of(1, [a_pod_of(0, 1), a_pod_of(0, 9)]).values())) == 2


def test_lines_that_only_the_pod_has_do_not_hide_lines_of_a_bucket_that_is_behind() -> None:
    record = a_record(backend="gke", workload="Job")
    own, whole = ["[kinetic] first", "[kinetic] second"], ["one", "two", "three", "four", "last"]
    names = JobObjects(record.job_id)
    broken = threading.Event()

    class Behind(FakeStore):
        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            if name == names.outcome and broken.is_set():  # The job has stored its last lines.
                self.write(f"{names.log_chunks(1, 0)}00000001", b"three\nfour\nlast\n")
            return super().read(name, start=start, end=end)

    store = Behind()
    store.write(f"{names.log_chunks(1, 0)}00000000", b"one\ntwo\n")
    claim(store, record, 1, 0)

    def rotated(since: str | None) -> list[str]:
        if since is None:
            return [*own, *whole[:3]]
        broken.set()
        return ["", "", "", "", "", "last"]

    cluster = Slice({0: rotated})
    cluster.running = 8

    texts = [line.text for line in followed(record, cluster, store)]

    assert texts == [*own, *whole[:3], BROKEN, *whole[3:]]


def test_without_a_count_the_log_goes_on_once_the_bucket_has_the_last_lines() -> None:
    later = (LogLine(text) for text in ["0", "a", "b", "c"])
    assert skip_past(["a", "b"], later)
    assert [line.text for line in later] == ["c"]
    assert not skip_past(["a", "b"], iter([LogLine("a")]))


def test_a_log_outlasts_expired_logins_and_an_unavailable_bucket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = a_record(backend="gke", workload="Job")
    errors: list[KineticError] = []

    class Failing(FakeStore):
        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            if errors and name.startswith(record.job_id):
                raise errors.pop()
            return super().read(name, start=start, end=end)

    store = Failing()
    claim(store, record, 1, 0)

    def lines(since: str | None) -> Iterator[str]:
        errors.extend([StoreUnavailableError("No answer."), NotAuthenticatedError("Log in.")])
        yield "a"
        yield end_marker(record.job_id, 1, 0)

    with caplog.at_level(logging.WARNING):
        texts = [line.text for line in followed(record, Slice({0: lines}), store)]

    assert texts == ["a"]
    assert errors == []
    assert caplog.text.count("Log in.") == 1


def test_an_outage_while_the_rest_of_a_log_is_read_from_the_bucket_is_reported_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = a_record(backend="gke", workload="Job")
    outages = [StoreUnavailableError("No answer."), StoreUnavailableError("No answer.")]
    names = JobObjects(record.job_id)

    class Failing(FakeStore):
        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            if outages and name.endswith("00000001"):
                raise outages.pop()
            return super().read(name, start=start, end=end)

    store = Failing()
    claim(store, record, 1, 0)
    for number in range(3):
        store.write(f"{names.log_chunks(1, 0)}{number:08d}", f"line {number}\n".encode())

    with caplog.at_level(logging.WARNING):
        texts = [line.text for line in followed(record, Slice({0: lambda _: iter(())}), store)]

    assert texts == ["line 0", "line 1", "line 2"]
    assert outages == []
    assert caplog.text.count("No answer. The log goes on as soon as it can be read again.") == 1


def test_patience_ends_with_errors_that_do_not_pass() -> None:
    now = [0.0]
    login, outage = NotAuthenticatedError("Log in."), StorePermissionError("Forbidden.")
    forbidden = NotPermittedError("Forbidden.")
    at_first = Patience(Logins(), clock=lambda: now[0])
    later = Patience(Logins(), reached=True, clock=lambda: now[0])

    assert [at_first.bears(error) for error in (login, outage, forbidden)] == [False, False, True]
    assert [later.bears(error) for error in (login, outage, forbidden)] == [True, True, True]
    assert not later.bears(RecordError("Broken."))
    now[0] = 11.0
    assert [later.bears(error) for error in (login, outage, forbidden)] == [True, True, False]
    later.reset()
    assert later.bears(forbidden)
