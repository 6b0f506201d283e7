"""Read from a job's store how the hosts of its attempts ended; ignore objects that the job did not write."""

from __future__ import annotations

from kinetic_payload.errors import RecordError
from kinetic_payload.layout import EXIT_BAD_NODE, JobObjects
from kinetic_payload.records.attempt_result import HostEnd, parse_host_end, result_of
from kinetic_payload.records.retry import Tally, tally_of
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.storage import read_verified
from kinetic_payload.stores.store import Store


def read_host_ends(
    store: Store, signer: Signer, job: JobObjects, attempt: int, hosts: int
) -> list[HostEnd]:
    """Read how the *hosts* of an attempt ended; those without a host outcome are missing.

    Only what *signer* verifies counts. One request is made for each host.

    Raises:
        StoreError: A host outcome could not be read.
    """
    found = []
    for host in range(hosts):
        try:
            data = read_verified(store, signer, job.host_outcome(attempt, host))
            if data is not None:
                found.append(parse_host_end(host, data))
        except RecordError:
            continue
    return found


def tally_before(
    store: Store,
    signer: Signer,
    job: JobObjects,
    attempt: int,
    hosts: int,
    *,
    silent_failures: bool = False,
) -> Tally:
    """Count the failures, the disruptions and the bad nodes among the attempts before *attempt*.

    With *silent_failures*, an attempt of which no host has reported counts as a failure.

    Raises:
        StoreError: A host outcome could not be read.
    """
    earlier = (read_host_ends(store, signer, job, number, hosts) for number in range(1, attempt))
    return tally_of(
        result_of(ends, hosts) if ends or not silent_failures else "failed" for ends in earlier
    )


def bad_nodes_before(
    store: Store, signer: Signer, job: JobObjects, attempt: int, hosts: int
) -> list[str]:
    """Return the names of the nodes whose accelerator could not be initialised before *attempt*.

    Raises:
        StoreError: A host outcome could not be read.
    """
    return [
        end.node
        for number in range(1, attempt)
        for end in read_host_ends(store, signer, job, number, hosts)
        if end.exit_code == EXIT_BAD_NODE
    ]
