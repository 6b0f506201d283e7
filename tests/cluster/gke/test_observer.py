"""Jobs without objects in the cluster: starting, gone, or of another cluster."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic.backends.gke.host_log import LogSources
from kinetic.backends.gke.key import ClusterKey
from kinetic.backends.gke.logs import JobLog
from kinetic.backends.gke.observation import JobWatches, Observer
from kinetic.errors import ConfigurationError, JobError
from kinetic.job_status import JobStatus
from kinetic.settings.keys import KeySigner
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import connect
from kinetic_k8s.cluster.connection import Access
from kinetic_k8s.errors import ClusterUnreachableError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.signing import signed
from kinetic_servers.fakes import FakeStore, a_record

RECORD = a_record(backend="gke")
NAMES = JobObjects(RECORD.job_id)
OTHER = b"o" * 32


def kept(key: bytes | None) -> FakeStore:
    """Return a store with the job's call and its record, signed with *key*."""
    store = FakeStore()
    store.write(NAMES.payload, b"")
    data = encode(RECORD)
    store.write(NAMES.handle, data if key is None else signed(data, key, name=NAMES.handle))
    return store


def claim(store: FakeStore, key: bytes) -> None:
    claimed = Claim(job_id=RECORD.job_id, attempt=1, host=0, hostname="pod", pid=1, claimed_at=1.0)
    name = NAMES.claim(1, 0)
    store.write(name, signed(encode(claimed), key, name=name))


def test_a_job_without_a_workload_is_gone_only_if_it_cannot_be_about_to_start(
    cluster: ApiServer,
) -> None:
    keys = ClusterKey(cluster)
    key = keys.ensure()
    pauses: list[float] = []

    def look(store: FakeStore, *, starting: float = 60.0) -> JobStatus:
        observer = Observer(cluster, store, KeySigner(keys), pause=pauses.append, starting=starting)
        return observer.observe(RECORD).status

    young = kept(key)
    assert look(young) is JobStatus.PENDING
    # What somebody else put there is no claim: the job would be taken for one that has run.
    claim(young, OTHER)
    assert look(young) is JobStatus.PENDING
    assert pauses == []

    claimed = kept(key)
    claim(claimed, key)
    assert look(claimed) is JobStatus.NOT_FOUND
    assert look(kept(key), starting=0.0) is JobStatus.NOT_FOUND
    # Each was looked at twice.
    assert [pause >= 1 for pause in pauses] == [True, True]

    with pytest.raises(JobError, match="another key") as caught:
        look(kept(OTHER), starting=0.0)
    assert caught.value.job_id == RECORD.job_id
    assert look(FakeStore()) is JobStatus.NOT_FOUND


def test_the_key_is_created_once_and_never_by_reading_it(cluster: ApiServer, bed: Any) -> None:
    everywhere = ApiServer(bed.access("default"))
    before = everywhere.get("Secret", "kinetic-key") is None

    assert ClusterKey(everywhere).read() is None or not before
    assert (everywhere.get("Secret", "kinetic-key") is None) is before
    first, second = ClusterKey(cluster).ensure(), ClusterKey(cluster).ensure()
    assert first == second == ClusterKey(cluster).read()


def test_a_user_who_may_not_read_the_key_gets_an_error_with_the_permission(
    cluster: ApiServer, bed: Any
) -> None:
    user = connect(
        kubeconfig=bed.environment["KUBE_BED_USER_KUBECONFIG"], namespace=cluster.identity.namespace
    )

    with pytest.raises(ConfigurationError, match="403") as caught:
        ClusterKey(user).ensure()

    assert "'secrets'" in str(caught.value)
    assert "KINETIC_TRUST_BUCKET=1" in str(caught.value)


def test_readers_of_an_unreachable_cluster_stop_after_ten_seconds() -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    unreachable = ApiServer(Access(server="https://127.0.0.1:9"), clock=lambda: now[0], pause=pause)
    store = kept(None)
    observer = Observer(unreachable, store, None)
    sources = LogSources(
        record=RECORD, store=store, observer=observer,
        watches=JobWatches(unreachable),
    )  # fmt: skip
    log = JobLog(sources)

    # Who waits for a job looks again and again until the deadline.
    for look in (
        lambda: observer.observe(RECORD),
        ClusterKey(unreachable).read,
        lambda: next(log.read(None)),
        lambda: next(log.follow(None)),
    ):
        with pytest.raises(ClusterUnreachableError, match="in 10 s"):
            look()
