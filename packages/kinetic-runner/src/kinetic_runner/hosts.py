"""Decide which of the job's hosts this one is: environment → index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import HOST_INDEX_SOURCES, Env

_TPU_WORKER_ID: Final = "TPU_WORKER_ID"
_TPU_WORKER_HOSTNAMES: Final = "TPU_WORKER_HOSTNAMES"
_NAMED: Final = 10
FIRST_NOTICE: Final = 30.0
"""Seconds after which the log first names the hosts that are waited for; the wait then doubles each time."""


@frozen()
class Host:
    """One machine (on a laptop: one process) of a job."""

    index: int = 0
    count: int = 1

    @property
    def leader(self) -> bool:
        """Whether this host's value is the job's result."""
        return self.index == 0


def host_of(environment: Mapping[str, str], count: int) -> Host:
    """Decide which of *count* hosts this is. An empty variable counts as unset.

    Raises:
        InvalidRequestError: A variable is missing or invalid.
    """
    source = next((name for name in HOST_INDEX_SOURCES if environment.get(name)), None)
    index = (_number(environment, source) or 0) if source else 0
    if source is None and count > 1:
        raise InvalidRequestError(
            f"The job has {count} hosts, and no variable names the index of this host.",
            hint=f"Set {Env.HOST_INDEX} to a number from 0 to {count - 1}.",
        )
    if index >= count:
        raise InvalidRequestError(
            f"{source} is {index}, but the job has {count} host(s), counted from 0.",
            hint=f"Set {Env.HOST_INDEX}, which takes precedence, or correct the count.",
        )
    return Host(index, count)


def restarts_of(environment: Mapping[str, str], host: Host) -> int | None:
    """Return how many times all hosts were restarted; None for a single host, and where nothing counts that.

    A JobSet counts it. A plain Indexed Job replaces single hosts.

    Raises:
        InvalidRequestError: The variable is invalid.
    """
    return None if host.count == 1 else _number(environment, Env.RESTART_ATTEMPT)


def tpu_variables(environment: Mapping[str, str], host: int) -> dict[str, str]:
    """Return the variables by which the TPU runtime of *host* finds those of the other hosts.

    Empty where both are set, or where this host is not one of several with TPUs. GKE sets both for pods of
    Indexed Jobs with a headless Service:
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#tpu-env-vars
    """
    names = environment.get(Env.HOST_NAMES, "")
    has_tpu = environment.get(Env.DEVICES, "").startswith("tpu:")
    # Under Pathways the function runs on a machine without TPUs.
    if not names or not has_tpu or environment.get(Env.PATHWAYS):
        return {}
    if environment.get(_TPU_WORKER_ID) and environment.get(_TPU_WORKER_HOSTNAMES):
        return {}
    return {_TPU_WORKER_ID: str(host), _TPU_WORKER_HOSTNAMES: names}


def names_of(hosts: Sequence[int]) -> str:
    """Return *hosts* in words, such as `hosts 1, 2`; of many, the first ones."""
    if len(hosts) == 1:
        return f"host {hosts[0]}"
    more = len(hosts) - _NAMED
    text = ", ".join(map(str, hosts[:_NAMED]))
    return f"hosts {text}" + (f" and {more} more" if more > 0 else "")


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    # int() alone would accept "1_0", "+1" and non-ASCII digits.
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequestError(
            f"{name} is {text!r}; a whole number from 0 was expected.",
            hint=f"Correct {name} where the job is defined.",
        )
    return int(text)
