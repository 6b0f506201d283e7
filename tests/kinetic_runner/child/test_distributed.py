import importlib.util
import os
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic_payload.layout import JobObjects
from kinetic_payload.testing import MemoryStore
from kinetic_runner.child.distributed import (
    DistributedError,
    Slice,
    join,
    wait_for_addresses,
    wait_for_hosts,
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

    def initialize(
        self,
        heartbeat_timeout_seconds: int = 100,
        shutdown_timeout_seconds: int = 300,
        **kwargs: Any,
    ) -> None:
        if self.fails:
            raise RuntimeError("connection refused")
        timeouts = {
            "heartbeat_timeout_seconds": heartbeat_timeout_seconds,
            "shutdown_timeout_seconds": shutdown_timeout_seconds,
        }
        self.calls.append({**kwargs, **timeouts})
        self.joined = True


class EarlierJax(Jax):
    """A version without these timeouts."""

    def initialize(self, **kwargs: Any) -> None:  # type: ignore[override]
        assert "heartbeat_timeout_seconds" not in kwargs
        super().initialize(**kwargs)


ON_ONE_MACHINE = Slice("127.0.0.1:9000", hosts=2, host=1)


def joined(slice_: Slice, *addresses: str, jax: Jax | None = None) -> Jax:
    jax = jax or Jax()
    join(jax, slice_, addresses_of=lambda _: list(addresses))
    return jax


def test_on_one_machine_all_values_are_passed_and_the_coordinator_listens_on_loopback() -> None:
    assert joined(ON_ONE_MACHINE).calls == [
        {
            "coordinator_address": "127.0.0.1:9000",
            "coordinator_bind_address": "127.0.0.1:9000",
            "num_processes": 2,
            "process_id": 1,
            "cluster_detection_method": "deactivate",
            "heartbeat_timeout_seconds": 315360000,
            "shutdown_timeout_seconds": 300,
        }
    ]
    assert joined(ON_ONE_MACHINE, jax=EarlierJax()).joined


@pytest.mark.parametrize(("debugged", "seconds"), [(False, 300), (True, 315360000)])
def test_on_a_cluster_limits_are_jaxs_or_those_that_were_set_and_a_debugged_leader_has_none(
    debugged: bool, seconds: int
) -> None:
    slice_ = Slice("job-0.svc:8476", hosts=2, host=1, debugged=debugged, timeout=900)

    (call,) = joined(slice_).calls

    assert call["initialization_timeout"] == 900
    assert call["heartbeat_timeout_seconds"] == 100
    assert call["shutdown_timeout_seconds"] == seconds


def test_a_host_waits_for_one_that_is_minutes_late_and_names_it_unless_that_one_has_ended(
    capfd: pytest.CaptureFixture[str],
) -> None:
    store, job, times = MemoryStore(), JobObjects("job"), count(step=10)

    def pause(_: float) -> bool:
        if next(times) > 600:
            store.write(job.joining(1, 2), b"")
        return False

    wait = partial(wait_for_hosts, store, job, pause=pause, clock=lambda: next(times))
    store.write(job.joining(1, 1), b"")
    wait(1, Slice("", hosts=3, host=0))
    assert "Still waiting for host 2 to import JAX, after 310 s." in capfd.readouterr().err

    store.write(job.host_outcome(2, 1), b"")
    wait(2, Slice("", hosts=2, host=0))
    assert capfd.readouterr().err == ""


def test_calls_of_the_user_do_nothing_until_the_hosts_have_left() -> None:
    jax = joined(ON_ONE_MACHINE)

    jax.distributed.initialize()
    jax.distributed.initialize("10.0.0.1:1", 4, 3)
    assert len(jax.calls) == 1

    jax.joined = False
    jax.distributed.initialize(initialization_timeout=5)
    assert jax.calls[1] == {**jax.calls[0], "initialization_timeout": 5}


def test_a_host_that_cannot_join_names_itself_and_the_coordinator() -> None:
    with pytest.raises(DistributedError, match=r"Host 1 of 2 .* 127\.0\.0\.1:9000"):
        joined(ON_ONE_MACHINE, jax=Jax(fails=True))


def own_addresses() -> list[str]:
    """Return an address of this machine by which others may reach it; none if there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # Nothing is sent.
        return [probe.getsockname()[0]]
    return []


def test_on_a_cluster_the_leader_listens_where_the_other_hosts_reach_it() -> None:
    addresses = ["127.0.1.1", "192.0.2.1", *own_addresses()]
    bound = [
        joined(Slice("job-0.svc:8476", hosts=2, host=host), *addresses)
        .calls[0]
        .get("coordinator_bind_address")
        for host in range(2)
    ]

    # Not at an address that is another machine's, nor where only this one reaches it.
    assert bound == [f"{own_addresses()[0]}:8476" if own_addresses() else None, None]


@pytest.mark.parametrize(
    ("has_address_at", "look_up_takes", "gives_up_at"),
    [(1.05, 0.0, None), (1e9, 0.0, 30.0), (30.0, 40.0, None)],
    ids=["late", "never", "after a look-up that took too long"],
)
def test_a_name_may_get_its_address_late_but_not_never(
    has_address_at: float, look_up_takes: float, gives_up_at: float | None
) -> None:
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    def look_up(_name: str, _: None) -> list[Any]:
        if now < has_address_at:
            pause(look_up_takes)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, None, 0, "", ("10.0.0.7", 0))]

    more: Any = {"pause": pause, "clock": lambda: now, "look_up": look_up}
    if gives_up_at is None:
        assert wait_for_addresses("job-0.svc", **more) == ["10.0.0.7"]
    else:
        with pytest.raises(DistributedError, match=r"job-0\.svc, has no address after 30 s.*known"):
            wait_for_addresses("job-0.svc", **more)
        assert now == pytest.approx(gives_up_at, abs=0.2)


@pytest.fixture
def nameless_machine() -> list[str]:
    """Return a command that runs another one on a machine whose own name has no address, if this user may."""
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
        "import sys; from kinetic_runner.child.distributed import Slice, prepare\n"
        f"host = int(sys.argv[1])\nprepare(Slice({address!r}, 2, host))\n"
        "assert 'jax' not in sys.modules\n"
        "import jax\nfrom jax.distributed import initialize\ninitialize()\n"
        "print(jax.process_index(), jax.process_count(), jax.device_count(), jax.local_device_count())"
    )
    environment = {
        **os.environ,  # noqa: TID251 - the same, and a shape
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    hosts = [
        subprocess.Popen(
            [*nameless_machine, sys.executable, "-c", code, str(host)],
            env=environment,
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
