"""(child) Join the hosts of a slice: `jax.distributed` is initialised right after user code imports JAX.

Nothing here imports JAX: an import hook waits until user code does.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import KineticError
from kinetic_payload.layout import REPORT_SECONDS, JobObjects
from kinetic_payload.stores.store import Store
from kinetic_runner.child.imports import after_import
from kinetic_runner.child.streams import print_error
from kinetic_runner.hosts import FIRST_NOTICE, names_of
from kinetic_runner.store_retries import WAIT, retry

_TEN_YEARS = 10 * 365 * 24 * 3600


class DistributedError(KineticError):
    """This host could not join the others."""


@dataclass(frozen=True)
class Slice:
    """The values that `jax.distributed.initialize` takes, passed explicitly."""

    coordinator: str
    """`address:port` of the leader."""
    hosts: int
    host: int
    debugged: bool = False
    """Whether the leader waits at the breakpoints of a debugger: then no host gives it up."""
    timeout: int | None = None
    """Seconds to connect; None: JAX's default of five minutes."""

    @property
    def bind_address(self) -> str | None:
        """The address at which the leader listens: loopback if the hosts reach it there, else JAX's default."""
        name = self.coordinator.rpartition(":")[0]
        return self.coordinator if name in ("127.0.0.1", "localhost", "[::1]") else None


def wait_for_addresses(
    name: str,
    *,
    seconds: float = 30.0,
    look_up: Callable[[str, None], Any] = socket.getaddrinfo,
    pause: Callable[[float], object] = WAIT,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Return the addresses of *name*; wait for *seconds* until it has one.

    The name of a pod has an address 0.02 to 1.05 s after the pod has started, by our measurements. A look-up
    before that may take longer than *seconds*: the resolver also asks a name server outside of the cluster,
    which may not respond. So the last look-up begins when the time is over.

    Raises:
        DistributedError: The name has no address in that time.
    """
    until = clock() + seconds
    while True:
        began = clock()
        try:
            return [found[4][0] for found in look_up(name, None)]
        except OSError as error:
            if began >= until:
                raise DistributedError(
                    f"The name of the leader, {name}, has no address after {seconds:g} s: {error}.",
                    hint="Its pod may have ended, or the cluster's DNS does not answer.",
                ) from error
        pause(0.1)


def own_address(addresses: Iterable[str]) -> str | None:
    """Return the first of *addresses* that other machines reach this one by; None if there is none."""
    for address in addresses:
        if address.startswith("127.") or address == "::1":
            continue
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe, suppress(OSError):
            probe.bind((address, 0))
            return address
    return None


def prepare(
    slice_: Slice,
    before: Callable[[], object] = lambda: None,
    on_joined: Callable[[], None] = lambda: None,
) -> None:
    """Make `import jax` join *slice_*, once, in this process; forked children are left alone.

    *before* is called first, and *on_joined* each time that the hosts are joined.
    """

    def join_all(jax: ModuleType) -> None:
        before()
        join(jax, slice_, on_joined)

    after_import("jax", join_all)


def wait_for_hosts(
    store: Store,
    job: JobObjects,
    attempt: int,
    slice_: Slice,
    *,
    pause: Callable[[float], bool] = WAIT,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until all hosts are about to join, because JAX gives up one that is five minutes late.

    The log names the missing ones. Only the end of the attempt limits the wait. For a host that has ended it is of
    no use; its report is not verified here, so JAX's limit decides.

    Raises:
        StoreError: The store has failed for an hour.
    """
    own = job.joining(attempt, slice_.host)
    retry(lambda: store.write(own, b""), seconds=REPORT_SECONDS, pause=pause)
    began, next_notice, backoff = clock(), FIRST_NOTICE, Backoff(0.1, 2.0, jitter=0)
    while True:
        listed = retry(
            lambda: list(store.list(f"{job.attempts}{attempt}/")),
            seconds=REPORT_SECONDS,
            pause=pause,
        )
        there = {info.name for info in listed}
        missing = [
            host
            for host in range(slice_.hosts)
            if there.isdisjoint((job.joining(attempt, host), job.host_outcome(attempt, host)))
        ]
        if not missing:
            return
        waited = clock() - began
        if waited >= next_notice:
            next_notice = 2 * waited
            print_error(
                f"[kinetic] Still waiting for {names_of(missing)} to import JAX, after {waited:.0f} s.\n"
            )
        pause(backoff.next())


def join(
    jax: Any,
    slice_: Slice,
    on_joined: Callable[[], None] = lambda: None,
    *,
    addresses_of: Callable[[str], list[str]] = wait_for_addresses,
) -> None:
    """Initialise `jax.distributed` of the module *jax*; calls by user code then do nothing.

    *addresses_of* looks up a name in DNS.
    """
    original = jax.distributed.initialize
    if slice_.bind_address is not None:
        keep_collectives_on_loopback()
    explicit = _arguments(slice_, set(inspect.signature(original).parameters), addresses_of)
    wait_interruptibly()
    # Versions before 0.5.3 have no public way.
    is_joined = getattr(
        jax.distributed,
        "is_initialized",
        lambda: jax._src.distributed.global_state.client is not None,  # noqa: SLF001
    )

    def initialize(*args: Any, **kwargs: Any) -> None:
        """Do nothing if the hosts are joined; else join them with the slice's values."""
        if is_joined():
            return
        named = dict(
            zip(("coordinator_address", "num_processes", "process_id"), args, strict=False)
        )
        given = {k: v for k, v in {**named, **kwargs}.items() if v is not None}
        original(*args[3:], **{**explicit, **given})
        on_joined()

    try:
        original(**explicit)
    except Exception as error:
        raise DistributedError(
            f"Host {slice_.host} of {slice_.hosts} could not join the coordinator at "
            f"{slice_.coordinator}: {error}",
            hint="Look at the logs of the other hosts: one of them may have failed before.",
        ) from error
    jax.distributed.initialize = initialize
    # Before JAX's own exit handler, and after those that are registered from now on.
    atexit.register(take_connection)
    on_joined()


def _arguments(
    slice_: Slice, supported: Set[str], addresses_of: Callable[[str], list[str]]
) -> dict[str, Any]:
    """Return the arguments with which this host joins *slice_*; *supported* are those that JAX knows."""
    explicit: dict[str, Any] = {
        "coordinator_address": slice_.coordinator,
        "num_processes": slice_.hosts,
        "process_id": slice_.host,
        # All values are known; asking metadata servers for them costs time, or hangs.
        "cluster_detection_method": "deactivate",
    }
    if slice_.bind_address is not None:
        explicit["coordinator_bind_address"] = slice_.bind_address
        # Heartbeats time out by wall clock: on a laptop that slept, those of all hosts would. On one machine
        # the supervisor sees at once that a host has ended.
        if "heartbeat_timeout_seconds" in supported:
            explicit["heartbeat_timeout_seconds"] = _TEN_YEARS
    else:
        name, _, port = slice_.coordinator.rpartition(":")
        addresses = addresses_of(name.strip("[]"))
        own = own_address(addresses) if slice_.host == 0 else None
        if own is not None:
            # JAX's default is all addresses of the pod, `[::]`, which needs IPv6.
            explicit["coordinator_bind_address"] = (
                f"[{own}]:{port}" if ":" in own else f"{own}:{port}"
            )
    if slice_.timeout is not None:
        explicit["initialization_timeout"] = slice_.timeout
    if slice_.debugged and "shutdown_timeout_seconds" in supported:
        # Heartbeats go on while a debugger holds Python's threads; this limit is of five minutes.
        explicit["shutdown_timeout_seconds"] = _TEN_YEARS
    return explicit


def keep_collectives_on_loopback() -> None:
    """Make gloo connect the hosts, which are all on this machine, by the loopback interface.

    By default it listens at the address of the machine's name. The name may have no address (VPN, DHCP), or
    another one in the next network. JAX has no setting for this, and passes no host name. In a version of JAX
    without such a function, nothing changes.
    """
    module = _native_module()
    make = getattr(module, "make_gloo_tcp_collectives", None)
    if make is None or "hostname" not in (make.__doc__ or "") or hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def make_on_loopback(*args: Any, **kwargs: Any) -> Any:
        if len(args) < 2 and not kwargs.get("interface"):
            kwargs["hostname"] = kwargs.get("hostname") or "127.0.0.1"
        return make(*args, **kwargs)

    module.make_gloo_tcp_collectives = make_on_loopback  # type: ignore[union-attr]


def wait_interruptibly() -> None:
    """Let a stop interrupt a host that waits for the others to join.

    JAX waits in native code, for minutes if a host is slow or has failed before it imported JAX. So a thread
    waits in native code, and the main thread waits for that thread. In a version of JAX without such a method,
    nothing changes.
    """
    kind = getattr(_native_module(), "DistributedRuntimeClient", None)
    connect = getattr(kind, "connect", None)
    if connect is None or hasattr(connect, "__wrapped__"):
        return

    @functools.wraps(connect)
    def connect_in_thread(client: Any) -> None:
        import threading

        ended = threading.Event()
        failures: list[Exception] = []

        def work() -> None:
            try:
                connect(client)
            except Exception as error:  # noqa: BLE001 - raised in the main thread
                failures.append(error)
            finally:
                ended.set()

        threading.Thread(target=work, name="kinetic-join", daemon=True).start()
        ended.wait()
        for failure in failures:
            raise failure

    kind.connect = connect_in_thread  # type: ignore[union-attr]


def _native_module() -> ModuleType | None:
    """Return the native part of JAX, by either of its names."""
    return sys.modules.get("jaxlib._jax") or sys.modules.get("jaxlib.xla_extension")


def take_connection() -> None:
    """Take the connection to the slice from JAX, so that its exit handler does not leave the other hosts.

    That exit handler waits until all hosts leave. If this host failed, the other hosts would wait for it in the
    middle of their work. If another host fails, the wait would look like a slow exit handler.
    `taken_connection` returns the connection.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or getattr(state, "client", None) is None:
        return
    connection = Connection(
        client=state.client,
        service=getattr(state, "service", None),
        preemption=getattr(state, "preemption_sync_manager", None),
        port=str(getattr(state, "coordinator_address", "")).rpartition(":")[2],
    )
    _taken.append(connection)  # Destroying its parts would leave the other hosts as well.
    state.client = state.service = state.preemption_sync_manager = None


def taken_connection() -> Connection | None:
    """Return the connection that `take_connection` took, or None."""
    return _taken[-1] if _taken else None


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The connection of this process to its slice, which only Kinetic ends."""

    client: Any
    service: Any
    preemption: Any
    port: str
    """The port at which the coordinator listens."""

    @property
    def coordinates(self) -> bool:
        """Whether this process is the coordinator: JAX aborts the other hosts when it ends."""
        return self.service is not None

    def shut_down(self) -> None:
        """Leave the other hosts, in the order of JAX; this waits for all of them."""
        for part in (self.preemption, self.client, self.service):
            if part is not None:
                part.shutdown()

    def disconnect(self) -> None:
        """End all connections but the coordinator's: a host that waits for data of this one fails at once."""
        for number in [int(name) for name in os.listdir("/dev/fd")]:  # noqa: PTH208
            try:
                connection = socket.socket(fileno=number)
            except OSError:
                continue
            try:
                ends = (connection.getsockname(), connection.getpeername())
                if self.port not in [str(end[1]) for end in ends if len(end) > 1]:
                    connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # It listens, or its other end is gone.
            finally:
                connection.detach()


_taken: list[Connection] = []
