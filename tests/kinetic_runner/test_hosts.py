from __future__ import annotations

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_runner.hosts import Host, host_of, restarts_of, tpu_variables


@pytest.mark.parametrize(
    ("environment", "index"),
    [
        ({"KINETIC_HOST_INDEX": "2"}, 2),
        ({"JOB_COMPLETION_INDEX": "1"}, 1),
        ({"TPU_WORKER_ID": "3"}, 3),
        ({"LWS_WORKER_INDEX": "2"}, 2),
        ({"KINETIC_HOST_INDEX": "0", "JOB_COMPLETION_INDEX": "3", "TPU_WORKER_ID": "9"}, 0),
        ({"KINETIC_HOST_INDEX": "", "TPU_WORKER_ID": "1"}, 1),
        ({"JOB_COMPLETION_INDEX": "1", "LWS_WORKER_INDEX": "2"}, 1),
    ],
)
def test_the_platform_gives_the_index_and_kinetics_variable_wins(environment, index):
    host = host_of(environment, 4)

    assert host.index == index
    assert host.leader == (index == 0)


@pytest.mark.parametrize(
    ("environment", "hosts", "named"),
    [
        ({"KINETIC_HOST_INDEX": "one"}, 2, "KINETIC_HOST_INDEX"),
        ({"KINETIC_HOST_INDEX": "-1"}, 2, "KINETIC_HOST_INDEX"),
        ({"TPU_WORKER_ID": "1_0"}, 20, "TPU_WORKER_ID"),
        ({"LWS_WORKER_INDEX": "٣"}, 20, "LWS_WORKER_INDEX"),
        ({"JOB_COMPLETION_INDEX": "2"}, 2, "JOB_COMPLETION_INDEX is 2"),
        ({}, 2, "no variable names"),
    ],
)
def test_an_impossible_value_is_refused_with_its_variable(environment, hosts, named):
    with pytest.raises(InvalidRequestError, match=named):
        host_of(environment, hosts)


def test_several_hosts_read_the_restarts_of_all_if_the_platform_counts_them() -> None:
    assert restarts_of({"KINETIC_RESTART_ATTEMPT": "4"}, Host(0, 2)) == 4
    assert restarts_of({"KINETIC_RESTART_ATTEMPT": "4"}, Host()) is None
    assert restarts_of({"KINETIC_RESTART_ATTEMPT": ""}, Host(0, 2)) is None
    with pytest.raises(InvalidRequestError, match="KINETIC_RESTART_ATTEMPT"):
        restarts_of({"KINETIC_RESTART_ATTEMPT": "-1"}, Host(0, 2))


TPU_HOST = {"KINETIC_HOST_NAMES": "j-0.j,j-1.j", "KINETIC_DEVICES": "tpu:4"}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        (TPU_HOST, True),
        ({**TPU_HOST, "TPU_WORKER_ID": "0"}, True),  # GKE sets both.
        ({**TPU_HOST, "TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}, False),
        ({**TPU_HOST, "KINETIC_DEVICES": "gpu:8"}, False),
        ({**TPU_HOST, "KINETIC_PATHWAYS": "jax-0.10.0"}, False),
        ({"KINETIC_DEVICES": "tpu:4"}, False),
    ],
)
def test_the_tpu_runtime_finds_the_other_hosts(environment: dict[str, str], found: bool) -> None:
    variables = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "j-0.j,j-1.j"}

    assert tpu_variables(environment, 1) == (variables if found else {})
