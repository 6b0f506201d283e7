from __future__ import annotations

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_runner.hosts import Host, host_of, restarts_of, tpu_variables


def test_without_a_word_there_is_one_host_and_it_leads():
    assert host_of({}) == Host(0, 1, None)
    assert host_of({}).leader


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
def test_the_index_is_what_the_platform_says_and_kinetic_wins(environment, index):
    host = host_of(environment, hosts=4)

    assert host.index == index
    assert host.leader == (index == 0)


def test_count_and_coordinator_may_come_from_the_environment():
    environment = {
        "KINETIC_HOST_COUNT": "2",
        "KINETIC_HOST_INDEX": "1",
        "KINETIC_COORDINATOR_ADDRESS": "127.0.0.1:4000",
    }

    assert host_of(environment) == Host(1, 2, "127.0.0.1:4000")


@pytest.mark.parametrize(
    ("environment", "hosts", "named"),
    [
        ({"KINETIC_HOST_INDEX": "one"}, 2, "KINETIC_HOST_INDEX"),
        ({"KINETIC_HOST_INDEX": "-1"}, 2, "KINETIC_HOST_INDEX"),
        ({"TPU_WORKER_ID": "1_0"}, 20, "TPU_WORKER_ID"),
        ({"LWS_WORKER_INDEX": "٣"}, 20, "LWS_WORKER_INDEX"),
        ({"KINETIC_HOST_COUNT": "0"}, None, "KINETIC_HOST_COUNT"),
        ({"JOB_COMPLETION_INDEX": "2"}, 2, "JOB_COMPLETION_INDEX is 2"),
        ({"KINETIC_HOST_COUNT": "3", "KINETIC_HOST_INDEX": "0"}, 2, "KINETIC_HOST_COUNT is 3"),
        ({}, 2, "no variable names"),
    ],
)
def test_what_cannot_be_is_refused_by_name(environment, hosts, named):
    with pytest.raises(InvalidRequestError, match=named):
        host_of(environment, hosts=hosts)


def test_several_hosts_count_the_restarts_of_all_if_something_does() -> None:
    assert restarts_of({"KINETIC_RESTART_ATTEMPT": "4"}, Host(0, 2)) == 4
    assert restarts_of({"KINETIC_RESTART_ATTEMPT": "4"}, Host()) is None
    for said in ({}, {"KINETIC_RESTART_ATTEMPT": ""}):
        assert restarts_of(said, Host(0, 2)) is None
    with pytest.raises(InvalidRequestError, match="KINETIC_RESTART_ATTEMPT"):
        restarts_of({"KINETIC_RESTART_ATTEMPT": "-1"}, Host(0, 2))


TPU_HOST = {"KINETIC_HOST_NAMES": "j-0.j,j-1.j", "KINETIC_DEVICES": "tpu:4"}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        (TPU_HOST, {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "j-0.j,j-1.j"}),
        # One alone is not what GKE does.
        (
            {**TPU_HOST, "TPU_WORKER_ID": "0"},
            {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "j-0.j,j-1.j"},
        ),
        ({**TPU_HOST, "TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}, {}),
        ({**TPU_HOST, "KINETIC_DEVICES": "gpu:8"}, {}),
        ({**TPU_HOST, "KINETIC_PATHWAYS": "jax-0.10.0"}, {}),
        ({"KINETIC_DEVICES": "tpu:4"}, {}),
    ],
)
def test_the_tpu_runtime_finds_the_other_hosts(
    environment: dict[str, str], found: dict[str, str]
) -> None:
    assert tpu_variables(environment, 1) == found
