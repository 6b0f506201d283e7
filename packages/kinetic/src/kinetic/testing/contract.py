"""`BackendContract`: tests of a backend through `kinetic.run` and job handles.

Each part is a class of its own, so that a backend that does not implement one can pass the others. On a cluster
a job takes seconds: one job serves several assertions.
"""

# The names of the tests replace their docstrings.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from kinetic.errors import (
    BatchError,
    InvalidRequestError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    KineticError,
    NotLaunchedError,
    ResultTimeoutError,
    SignatureError,
    SubmitError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.discover import statuses_of
from kinetic.jobs.handle import JobHandle
from kinetic.testing.clients import PROJECT_FILES, RegisteredClient, eventually, users_project
from kinetic_k8s.cluster.port_forward import PortForward
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import Outcome

_LARGE: Final = 3 << 20
_EVERY: Final = 0.1
"""Seconds between observations: on a cluster each is a request or two."""
_BEATS: Final = 1.0
"""Seconds in which the function `beat` would write many outputs."""


class WithClient:
    """Base of all parts: a user's project, and a client of the backend under test."""

    project_files: Mapping[str, str] = PROJECT_FILES
    """Files of the user's project beside its functions, by name."""

    def make_client(self, folder: Path) -> RegisteredClient:
        """Return a client whose store is empty; *folder* is empty and belongs to the test.

        It is called again for each test.
        """
        raise NotImplementedError

    @contextmanager
    def at_work(self, folder: Path) -> Iterator[RegisteredClient]:
        """Yield a client with the user's functions; clean up its jobs at the end."""
        with users_project(folder / "project", self.project_files) as functions:
            client = self.make_client(folder)
            client.functions = functions
            try:
                yield client
            finally:
                client.close()


class BackendValues(WithClient):
    """Values, arguments, variables and exceptions."""

    def test_a_value_comes_back_and_its_job_is_cleaned_up(
        self, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setenv("CONTRACT_MINE", "mine, with = and 'quotes'\n")
        options = {"capture_env_vars": ["CONTRACT_*"], "timeout": 600}
        seen: list[JobStatus] = []
        with self.at_work(tmp_path) as client:
            describe = client.functions.describe
            job = client.submit(describe, 1, "two", size=_LARGE, key=[3.5], options=options)
            value = job.result(on_status_change=seen.append)

            assert value["values"] == (1, "two")
            assert value["named"] == {"key": [3.5]}
            assert value["large"] == random.Random(7).randbytes(_LARGE)  # noqa: S311
            variables = value["variables"]
            assert variables["CONTRACT_MINE"] == "mine, with = and 'quotes'\n"
            assert variables["KINETIC_JOB_ID"] == job.job_id
            assert variables["KINETIC_ATTEMPT"] == "1"
            assert variables["KINETIC_HOST_INDEX"] == "0"
            assert variables["KINETIC_HOST_COUNT"] == "1"
            assert variables["KINETIC_ACCELERATOR"] == job.accelerator
            assert "KINETIC_SIGNING_KEY" not in variables
            _assert_in_order(seen, JobStatus.SUCCEEDED)
            _assert_gone(client, job)
            assert client.outputs(job) == {"note"}
            assert job.result() == value
            assert job.result() == value

    def test_the_users_own_exception_comes_back_and_its_job_stays(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.fail, "no luck", 7)
            for handle in (job, client.attach(job.job_id)):
                error = _raised(handle.result)
                assert isinstance(error, client.functions.Sad)
                assert (str(error), error.code) == ("no luck (7)", 7)
                notes = "\n".join(error.__notes__)
                assert "Remote traceback" in notes
                assert "raise Sad(what, code)" in notes
                assert f"phase 'call' of attempt 1 on host 0 of job {job.job_id}" in notes

            assert job.status() is JobStatus.FAILED
            [host] = job.outcome().hosts
            assert (host.reason, host.phase, host.exit_code) == ("exception", "call", 1)
            assert "no luck (7)" in job.outcome().message
            assert _listed(client) == {job.job_id: JobStatus.FAILED}
            job.cleanup()
            _assert_gone(client, job)
            assert "about to fail" in _log(job)
            job.cleanup()


class BackendBasics(BackendValues):
    """Values, exit codes, failed preparations, timeouts and unknown ids."""

    def test_a_function_that_exits_succeeds_with_0_alone(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            # Run two jobs at once: neither may affect the other.
            good, bad = (client.submit(client.functions.leave, code) for code in (0, 3))
            assert "3" in str(_raised(bad.result, JobFailedError))
            assert good.result() is None
            assert bad.status() is JobStatus.FAILED
            assert bad.outcome().hosts[0].reason == "exited"

    def test_what_cannot_be_prepared_says_in_which_phase_and_is_not_retried(
        self, tmp_path: Path
    ) -> None:
        with self.at_work(tmp_path) as client:
            arguments = client.functions.Unloadable()
            job = client.submit(client.functions.describe, arguments, options={"retries": 2})
            error = _raised(job.result)
            assert "module_that_no_job_has" in str(error)
            assert "phase 'unpickle'" in "\n".join(error.__notes__)
            assert job.status() is JobStatus.FAILED
            assert list(job.outcome().attempts) == [1]

    def test_a_function_that_takes_longer_than_its_timeout_is_stopped(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.beat, options={"timeout": 1})
            _raised(job.result, JobFailedError)
            assert job.outcome().hosts[0].reason == "timeout"
            assert job.outcome().message
            _assert_quiet(client, job)

    def test_nothing_is_known_of_a_job_that_never_was(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            _raised(lambda: client.attach("cpu-f-20260101-000000-abcdef0"), JobNotFoundError)
            assert client.list() == []


class BackendLife(WithClient):
    """Status, waiting, attach, list, cancel and clean-up."""

    def refusing_starts(self, client: RegisteredClient) -> AbstractContextManager[object]:
        """Return a block in which the backend cannot start a job, after its record was written."""
        raise NotImplementedError

    def test_a_job_is_seen_by_all_who_wait_and_from_elsewhere_until_it_is_cleaned_up(
        self, tmp_path: Path
    ) -> None:
        seen: list[JobStatus] = []
        with self.at_work(tmp_path) as client, ThreadPoolExecutor(2) as pool:
            job = client.submit(client.functions.wait, [1, "two"])
            try:
                waiting = pool.submit(job.result, cleanup=False, on_status_change=seen.append)
                assert next(job.log_lines(follow=True)).text == "waiting"
                eventually(lambda: job.status() is JobStatus.RUNNING, every=_EVERY)
                assert _listed(client) == {job.job_id: JobStatus.RUNNING}
                assert job.job_id in client.resources()
                _raised(lambda: job.result(timeout=0.01), ResultTimeoutError)
                _wake_a_watch(client, job)
                asyncio.run(_await_a_while(job))
                other = pool.submit(client.attach(job.job_id).result, cleanup=False)
                assert job.status() is JobStatus.RUNNING
            finally:
                client.put(job, "go")
            assert waiting.result() == other.result() == [1, "two"]
            _assert_in_order(seen, JobStatus.SUCCEEDED)

            job.cancel()
            assert client.elsewhere(job.job_id) == ("SUCCEEDED", "done", [1, "two"])
            assert _listed(client) == {job.job_id: JobStatus.SUCCEEDED}
            assert asyncio.run(_await(client.attach(job.job_id))) == [1, "two"]
            _assert_gone(client, job)
            assert _log(job) == ["waiting", "done"]
            assert len(client.outputs(job, "begun")) == 1

    def test_a_cancelled_job_runs_no_more_and_has_failed_until_it_is_cleaned_up(
        self, tmp_path: Path
    ) -> None:
        with self.at_work(tmp_path) as client, ThreadPoolExecutor(1) as pool:
            job = client.submit(client.functions.beat)
            waiting = pool.submit(_raised, job.result, JobCancelledError)
            followed = job.log_lines(follow=True)
            assert next(followed).text == "beating"
            eventually(lambda: client.outputs(job, "beats/"), every=_EVERY)

            job.cancel()

            _assert_quiet(client, job)
            waiting.result()
            list(followed)  # The followed log ends.
            for handle in (job, client.attach(job.job_id)):
                assert handle.status() is JobStatus.FAILED
                _raised(handle.result, JobCancelledError)
                assert "beating" in _log(handle)
            assert "cancel" in job.outcome().message
            job.cancel()
            job.cleanup()
            _assert_gone(client, job)
            assert "beating" in _log(job)

    def test_a_start_that_fails_leaves_nothing_behind(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            before = client.resources()
            with self.refusing_starts(client):
                _raised(lambda: client.submit(client.functions.describe), SubmitError)
            assert client.objects() == set()
            # Resources that other clients of the backend removed may disappear meanwhile.
            assert client.resources() <= before
            assert client.list() == []


class BackendLogs(WithClient):
    """Reading and following the log."""

    def test_no_line_is_lost_however_the_log_is_read(self, tmp_path: Path, capsys: Any) -> None:
        out, err = ([f"{stream} {number}" for number in range(300)] for stream in ("out", "err"))
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.count, 300)
            capsys.readouterr()
            job.logs(follow=True)
            printed = capsys.readouterr()
            assert printed.out.splitlines() == [*out, "no end"]
            assert [line for line in printed.err.splitlines() if line.startswith("err ")] == err
            job.result(cleanup=False)
            kept = _log(job)
            for lines in (kept, _log(client.attach(job.job_id))):
                assert [line for line in lines if line.startswith("out ")] == out
                assert [line for line in lines if line.startswith("err ")] == err
                assert sum("no end" in line for line in lines) == 1
            assert job.tail(3).splitlines() == kept[-3:]
            assert job.tail(0) == ""
            assert [line.text for line in job.log_lines(follow=True)] == kept
            job.cleanup()
            assert _log(job) == kept
            assert {line.stream for line in job.log_lines() if line.text in err} == {"stderr"}


class BackendAttempts(WithClient):
    """Retries."""

    def test_a_function_that_fails_twice_is_tried_a_third_time(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.fail_until, 3, options={"retries": 2})
            followed = [line.text for line in job.log_lines(follow=True)]
            assert job.result(cleanup=False) == 3
            attempts = job.outcome().attempts
            ends = {number: [host.reason for host in hosts] for number, hosts in attempts.items()}
            assert ends == {1: ["exception"], 2: ["exception"], 3: ["returned"]}
            attempt_lines = [
                line for line in followed if line.startswith(("attempt ", "[kinetic] Attempt"))
            ]
            assert [line[:10] for line in attempt_lines] == [
                "attempt 1 ", "[kinetic] ", "attempt 2 ", "[kinetic] ", "attempt 3 ",
            ]  # fmt: skip
            assert "attempt 1 failed" in attempt_lines[1]
            assert attempt_lines[3].endswith("Attempt 3 begins.")
            assert "attempt 3 at work" in job.tail(1)
            assert f"kinetic jobs logs {job.job_id} --attempt all" in _log(job)[0]
            for handle in (job, client.attach(job.job_id)):
                assert "attempt 2 at work" in str(handle.logs(attempt=2))
                every = str(handle.logs(attempt="all")).splitlines()
                assert [line for line in every if line in attempt_lines] == attempt_lines
            assert "has logs of: 1, 2, 3, all." in str(
                _raised(lambda: job.logs(attempt=4), InvalidRequestError)
            )
            job.cleanup()
            assert "attempt 1 at work" in str(job.logs(attempt=1))

    def test_the_last_failure_is_the_jobs(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.fail_until, 3, options={"retries": 1})
            assert str(_raised(job.result, ValueError)) == "attempt 2 failed"
            assert list(job.outcome().attempts) == [1, 2]


class BackendPorts(WithClient):
    """Ports of a job, such as a debugger's."""

    def test_a_port_of_the_leaders_loopback_interface_can_be_reached(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.answer)
            [name] = eventually(lambda: client.outputs(job, "port-"), 240, every=_EVERY)
            forward = client.services.backend.forward(job._record)
            with (
                _reachable(forward, int(name.removeprefix("port-"))) as port,
                socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
            ):
                connection.sendall(b"hello")
                assert connection.recv(100) == b"HELLO"
            assert job.result() is None


class BackendQueue(WithClient):
    """Jobs that stay pending until the backend has room."""

    def full(self, client: RegisteredClient) -> AbstractContextManager[Mapping[str, Any]]:
        """Return a block that yields options with which submitted jobs stay pending."""
        raise NotImplementedError

    def test_a_job_that_waits_says_why_and_can_be_cancelled(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client, self.full(client) as options:
            job = client.submit(client.functions.wait, 1, options=options)
            message = eventually(lambda: job.outcome().message, every=_EVERY)
            assert " " in message
            assert job.status() is JobStatus.PENDING
            assert _listed(client)[job.job_id] is JobStatus.PENDING
            assert list(job.log_lines()) == []
            job.cancel()
            _raised(job.result, JobCancelledError)
            assert client.outputs(job) == set()


class BackendHosts(WithClient):
    """Jobs on several hosts."""

    several_hosts: Mapping[str, Any]
    """Arguments of `kinetic.run` that give *hosts* hosts."""
    hosts: int

    def test_the_leaders_value_counts_and_every_host_is_heard(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.meet, self.hosts, -1, options=self.several_hosts)
            followed = [line.shown for line in job.log_lines(follow=True)]
            assert job.result(cleanup=False) == 0
            lines = [f"[host {number}] hello from {number}" for number in range(self.hosts)]
            assert sorted(followed) == lines
            assert sorted(_log(job)) == lines
            assert [host.host for host in job.outcome().hosts] == list(range(self.hosts))

    def test_a_host_that_fails_ends_the_others_and_is_named(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client:
            job = client.submit(client.functions.meet, self.hosts, 1, options=self.several_hosts)
            error = _raised(job.result, client.functions.Sad)
            assert "attempt 1 on host 1" in "\n".join(error.__notes__)
            assert job.status() is JobStatus.FAILED


class BackendTrust(WithClient):
    """Forged records in the bucket of a running job."""

    def test_what_is_forged_neither_ends_a_job_nor_speaks_for_it(self, tmp_path: Path) -> None:
        with self.at_work(tmp_path) as client, ThreadPoolExecutor(1) as pool:
            store = client.services.store
            job = client.submit(client.functions.wait, "genuine")
            names = JobObjects(job.job_id)
            try:
                # Each may be written before the runner's own claim or after it.
                for attempt in (1, 2):
                    claim = Claim(
                        job_id=job.job_id,
                        attempt=attempt,
                        host=0,
                        hostname="h",
                        pid=1,
                        claimed_at=1.0,
                    )
                    store.write(names.claim(attempt, 0), encode(claim))
                eventually(lambda: client.outputs(job, "begun"), every=_EVERY)
                store.write(names.outcome, encode(Outcome(job_id=job.job_id, status="cancelled")))
                report = HostOutcome(
                    job_id=job.job_id, attempt=1, host=0, succeeded=False, reason="exited",
                    phase="call", exit_code=1, message="forged",
                )  # fmt: skip
                store.write(names.host_outcome(1, 0), encode(report))
                with suppress(SignatureError):
                    assert not job.status().terminal
            finally:
                client.put(job, "go")
            value = eventually(lambda: _trusted(job), every=_EVERY)
            assert value == "genuine"
            assert pool.submit(client.attach(job.job_id).result, cleanup=False).result() == value
            assert job.status() is JobStatus.SUCCEEDED
            assert len(client.outputs(job, "begun")) == 1


class BackendBatches(WithClient):
    """Many inputs of one function under one handle."""

    def test_each_input_of_a_batch_has_its_own_end_and_what_failed_runs_again(
        self, tmp_path: Path
    ) -> None:
        with self.at_work(tmp_path) as client:
            batch = client.submit_batch(client.functions.fail_until, [1, 2, 1], name="three")
            error = _raised(batch.results, BatchError)
            [failed] = error.failures
            again = client.attach(failed.job_id)

            assert error.partial_results == [1, None, 1]
            assert isinstance(error.exceptions[1], ValueError)
            assert again.status() is JobStatus.FAILED
            assert "attempt 1 at work" in _log(again)
            assert client.list() == [], "inputs are listed by their batch alone"

            batch.retry_failed()

            assert batch.results() == [1, 2, 1]
            assert batch.status_counts() == {"NOT_FOUND": 3}
            assert batch.group_id not in client.resources()

    def test_a_cancelled_batch_tells_what_was_stopped_from_what_never_began_and_continues_if_asked(
        self, tmp_path: Path
    ) -> None:
        with self.at_work(tmp_path) as client:
            batch = client.submit_batch(client.functions.wait, [1, "two"], max_concurrent=1)
            first, second = batch.jobs
            assert first is not None
            assert second is not None
            eventually(lambda: client.outputs(first, "begun"), every=_EVERY)

            batch.cancel()

            ends = batch.results(return_exceptions=True)
            assert [type(end) for end in ends] == [JobCancelledError, NotLaunchedError]
            for job in (first, second):
                client.put(job, "go")
            batch.retry_failed()
            assert batch.results() == [1, "two"]
            assert len(client.outputs(first, "begun")) == 2


class BackendContract(
    BackendBasics, BackendLife, BackendLogs, BackendAttempts, BackendPorts, BackendBatches
):
    """The tests that every backend passes, on one host, over any store.

    `BackendQueue`, `BackendHosts` and `BackendTrust` (over a bucket) are added where they apply.
    """


def _trusted(job: JobHandle) -> Any:
    """Return the value once the forged records have been replaced."""
    with suppress(SignatureError):
        return job.result(cleanup=False)
    return None


@contextmanager
def _reachable(forward: PortForward | None, port: int) -> Iterator[int]:
    """Yield the port of this machine that leads to *port* of a job."""
    if forward is None:
        yield port
        return
    reports: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        given = (listener, port, reports.append)
        serving = threading.Thread(target=forward.serve, args=given)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
    assert reports == []


def _raised(
    call: Callable[[], Any], kind: type[BaseException] | tuple[type[BaseException], ...] = Exception
) -> Any:
    """Return the exception of type *kind* that *call* raises."""
    try:
        value = call()
    except kind as error:
        return error
    raise AssertionError(f"It returned {value!r}.")


def _log(job: JobHandle) -> list[str]:
    """Return the lines of the log."""
    return (job.logs() or "").splitlines()


def _listed(client: RegisteredClient) -> dict[str, JobStatus | KineticError]:
    """Return all jobs and their statuses."""
    jobs = client.list()
    return {job.job_id: status for job, status in zip(jobs, statuses_of(jobs), strict=True)}


def _assert_in_order(seen: list[JobStatus], last: JobStatus) -> None:
    """Check that a job was pending, ran and ended, in this order; each may have been missed."""
    order = [JobStatus.PENDING, JobStatus.RUNNING, last]
    assert seen == [status for status in order if status in seen], seen
    assert seen[-1] is last


def _assert_gone(client: RegisteredClient, job: JobHandle) -> None:
    """Check that only the log and the outputs of *job*, the only one in its store, are left."""
    assert job.status() is JobStatus.NOT_FOUND
    assert client.objects() == set()
    assert job.job_id not in client.resources()
    assert client.list() == []
    _raised(lambda: client.attach(job.job_id), JobNotFoundError)


def _assert_quiet(client: RegisteredClient, job: JobHandle) -> None:
    """Check that the function `beat` no longer runs."""
    left = client.outputs(job, "beats/")
    threading.Event().wait(_BEATS)
    assert client.outputs(job, "beats/") == left


def _wake_a_watch(client: RegisteredClient, job: JobHandle) -> None:
    """Wait on a watch without an end, and wake it from another thread."""
    woken = threading.Event()
    with client.services.backend.watch([job._record]) as watch:

        def wait() -> None:
            while not woken.is_set():
                watch.wait(None)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        woken.set()
        watch.wake()
        thread.join(60)
        assert not thread.is_alive(), "The watch did not wake."


async def _await_a_while(job: JobHandle) -> None:
    """Await the job and cancel the wait, which does not affect the job."""
    task = asyncio.ensure_future(_await(job))
    await asyncio.sleep(0.2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
        raise AssertionError("The cancelled wait ended with a value.")


async def _await(job: JobHandle) -> Any:
    return await job
