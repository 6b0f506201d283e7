import importlib.util
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kinetic_payload
import kinetic_runner
from kinetic_runner.child.distributed import DistributedError, Slice, join, wait_for_addresses

SOURCES = [str(Path(str(p.__file__)).parents[1]) for p in (kinetic_runner, kinetic_payload)]
START = (
    f"import sys; sys.path[:0] = {SOURCES!r}\n"
    "from kinetic_runner.child.distributed import Slice, prepare\n"
)


class Jax:
    """As much of JAX as joining the hosts needs."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[dict[str, Any]] = []
        self.joined = False
        self.fails = fails
        self.distributed = SimpleNamespace(
            initialize=self.initialize, is_initialized=lambda: self.joined
        )

    def initialize(self, heartbeat_timeout_seconds: int = 100, **kwargs: Any) -> None:
        if self.fails:
            raise RuntimeError("connection refused")
        self.calls.append({**kwargs, "heartbeat_timeout_seconds": heartbeat_timeout_seconds})
        self.joined = True


class EarlierJax(Jax):
    """A version whose hosts cannot be told how long to do without heartbeats."""

    def initialize(self, **kwargs: Any) -> None:  # type: ignore[override]
        super().initialize(**kwargs)
        assert "heartbeat_timeout_seconds" not in kwargs


def a_slice() -> Slice:
    return Slice("127.0.0.1:9000", hosts=2, host=1)


def test_the_values_are_passed_explicitly_and_the_service_stays_on_loopback() -> None:
    jax = Jax()

    join(jax, a_slice())

    assert jax.calls == [
        {
            "coordinator_address": "127.0.0.1:9000",
            "coordinator_bind_address": "127.0.0.1:9000",
            "num_processes": 2,
            "process_id": 1,
            "cluster_detection_method": "deactivate",
            "heartbeat_timeout_seconds": 315360000,
        }
    ]


def test_an_earlier_jax_and_a_cluster_keep_their_own_heartbeats() -> None:
    earlier, cluster = EarlierJax(), Jax()

    join(earlier, a_slice())
    join(cluster, Slice("job-0.svc:8476", hosts=2, host=1), addresses_of=lambda _: [])

    assert earlier.joined
    assert [call["heartbeat_timeout_seconds"] for call in cluster.calls] == [100]


def test_no_host_gives_up_a_leader_that_is_debugged() -> None:
    class Waiting(Jax):
        def initialize(  # type: ignore[override]
            self, initialization_timeout: int = 300, **kwargs: Any
        ) -> None:
            super().initialize(initialization_timeout=initialization_timeout, **kwargs)

    jax, debugged = Waiting(), Waiting()

    join(jax, Slice("job-0.svc:8476", hosts=2, host=1), addresses_of=lambda _: [])
    leader = Slice("job-0.svc:8476", hosts=2, host=1, debugged=True)
    join(debugged, leader, addresses_of=lambda _: [])

    assert jax.calls[0]["initialization_timeout"] == 300
    assert debugged.calls[0]["initialization_timeout"] > 86_400


def test_the_users_own_call_does_no_harm() -> None:
    jax = Jax()
    join(jax, a_slice())

    jax.distributed.initialize()
    jax.distributed.initialize("10.0.0.1:1", 4, 3)

    assert len(jax.calls) == 1


def test_after_a_shutdown_the_hosts_can_join_again() -> None:
    jax = Jax()
    join(jax, a_slice())
    jax.joined = False

    jax.distributed.initialize(initialization_timeout=5)

    assert jax.calls[1] == {**jax.calls[0], "initialization_timeout": 5}


def test_a_host_that_cannot_join_names_itself_and_the_coordinator() -> None:
    with pytest.raises(DistributedError, match=r"Host 1 of 2 .* 127\.0\.0\.1:9000"):
        join(Jax(fails=True), a_slice())


def own_addresses() -> list[str]:
    """Return an address of this machine by which others may reach it; none if there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # Nothing is sent.
        return [probe.getsockname()[0]]
    return []


def test_a_cluster_listens_where_its_hosts_reach_it() -> None:
    bound = []
    for host in range(2):
        jax = Jax()
        found = ["127.0.1.1", "192.0.2.1", *own_addresses()]
        join(jax, Slice("job-0.svc:8476", hosts=2, host=host), addresses_of=lambda _, f=found: f)
        bound.append(jax.calls[0].get("coordinator_bind_address"))

    # Not at an address that is another machine's, nor where only this one reaches it.
    assert bound == [f"{own_addresses()[0]}:8476" if own_addresses() else None, None]


def test_a_name_may_get_its_address_late_but_not_never() -> None:
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    def look_up(name: str, _: None) -> list[Any]:
        if now < 1.05:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, None, 0, "", ("10.0.0.7", 0))]

    more: Any = {"pause": pause, "clock": lambda: now, "look_up": look_up}
    assert wait_for_addresses("job-0.svc", **more) == ["10.0.0.7"]
    now = -100.0
    with pytest.raises(DistributedError, match=r"job-0\.svc, has no address after 30 s.*not known"):
        wait_for_addresses("job-0.svc", **more)
    assert now == pytest.approx(-70.0, abs=0.2)


def test_a_first_look_up_that_takes_too_long_is_repeated() -> None:
    now = 0.0

    def look_up(_name: str, _: None) -> list[Any]:
        nonlocal now
        if now == 0:
            now = 40.0
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, None, 0, "", ("10.0.0.7", 0))]

    more: Any = {"pause": lambda _: None, "clock": lambda: now, "look_up": look_up}
    assert wait_for_addresses("job-0.svc", **more) == ["10.0.0.7"]


def test_nothing_imports_jax_by_itself() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{START}prepare(Slice('127.0.0.1:1', 2, 0))\nprint('jax' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "False\n"


@pytest.fixture
def nameless_machine() -> list[str]:
    """Return what runs a command on a machine whose own name has no address: nothing, if nobody may."""
    enter = ["unshare", "--map-root-user", "--uts"]
    nameless = [*enter, "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"]
    may = sys.platform == "linux" and not subprocess.run([*nameless, "true"]).returncode
    return nameless if may else []


@pytest.mark.slow  # two processes import JAX at once: about 8 s on two cores
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_two_processes_see_each_others_devices_whatever_the_machine_is_called(
    nameless_machine: list[str],
) -> None:
    # Bound, and not listened to, the port is kept from everybody but JAX's service, which shares ports.
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{kept.getsockname()[1]}"
    code = (
        f"{START}host = int(sys.argv[1])\nprepare(Slice({address!r}, 2, host))\n"
        "import jax\nfrom jax.distributed import initialize\ninitialize()\n"
        "print(jax.process_index(), jax.process_count(), jax.device_count(), jax.local_device_count())"
    )
    hosts = [
        subprocess.Popen(
            [*nameless_machine, sys.executable, "-c", code, str(host)],
            env={
                **os.environ,  # noqa: TID251 - the same, and a shape
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in range(2)
    ]
    try:
        seen = [host.communicate(timeout=300) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.wait()
        kept.close()

    assert [out for out, _ in seen] == ["0 2 8 4\n", "1 2 8 4\n"], seen
