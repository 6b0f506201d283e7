"""A worker of a batch with two hosts: its runners as processes here, started again together as a JobSet does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import Launch
from kinetic.batches.batch import BatchOptions, submit_batch
from kinetic.jobs.runner import runner_bundle, runner_environment
from kinetic.jobs.services import Services
from kinetic.testing import eventually
from kinetic_payload.layout import Env, Flag
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import parse_location
from kinetic_servers.fakes import FakeBackend, a_request


class Recording(FakeBackend):
    """Notes what it is to start on a cluster."""

    launch: Launch

    @contextmanager
    def announced(self, record: JobRecord) -> Iterator[JobRecord]:
        yield replace(record, workload="JobSet")

    def start(self, launch: Launch) -> None:
        self.launch = launch


class Slice:
    """The hosts that run one worker. They start again together once one of them has failed."""

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self.hosts: dict[int, subprocess.Popen[bytes]] = {}

    def add(self, *hosts: int) -> None:
        self.hosts |= {host: self._start(host) for host in hosts}

    def is_over(self) -> bool:
        """Restart the hosts if one has failed; return whether all have succeeded."""
        codes = [host.poll() for host in self.hosts.values()]
        if any(codes):
            assert 2 not in codes
            for host in self.hosts.values():
                host.send_signal(signal.SIGTERM)
            for host in self.hosts.values():
                host.wait()
            self.add(*self.hosts)
        return codes == [0, 0]


@pytest.fixture
def slices(tmp_path: Path) -> Iterator[Callable[..., list[Slice]]]:
    """Return what submits a batch, and gives the slices of its workers."""
    bundle, made = tmp_path / "runner.pyz", list[Slice]()
    bundle.write_bytes(runner_bundle(tmp_path / "home", bytecode=True))

    def start(launch: Launch, store: str, worker: int, host: int) -> subprocess.Popen[bytes]:
        record, workspace = launch.record, tempfile.mkdtemp(dir=tmp_path)
        flags = {
            Flag.STORE: store,
            Flag.JOB: record.job_id,
            Flag.RECORD_DIGEST: launch.record_digest,
            Flag.WORKSPACE: workspace,
            Flag.GRACE: "3",
        }
        words = [word for flag in flags.items() for word in flag]
        own = {Env.BATCH_WORKER: str(worker), Env.HOST_INDEX: str(host)}
        environment = {
            "PATH": os.defpath,
            **runner_environment(record, parse_location(store)),
            **own,
        }
        return subprocess.Popen(
            [sys.executable, str(bundle), *words], env=environment, cwd=workspace
        )

    def submit(function: Callable[..., Any], count: int, **options: Any) -> list[Slice]:
        store = FolderStore(tmp_path / "store")
        backend = Recording(store)
        request = a_request(accelerator="v5p-8", backend="gke", project="p")
        options = {"max_concurrent": 2, **options}
        checked = BatchOptions(**options)
        submit_batch(
            request, function, (), range(count), checked, services=Services(store, backend)
        )
        launch = backend.launch
        made.extend(
            Slice(partial(start, launch, str(store.location), worker)) for worker in launch.workers
        )
        return made

    yield submit
    for each in made:
        for host in each.hosts.values():
            host.kill()
            host.wait()


@pytest.mark.parametrize("early", [0, 1])
def test_a_host_that_waits_for_another_one_leaves_once_its_batch_was_stopped(
    slices: Callable[..., list[Slice]], early: int
) -> None:
    def fail(x: int) -> None:
        raise ValueError(x)

    failing, late = slices(fail, 2, fail_fast=True)
    late.add(early)
    failing.add(0, 1)
    eventually(failing.is_over)
    late.add(1 - early)
    eventually(late.is_over)
