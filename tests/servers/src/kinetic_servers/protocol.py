"""`BackendProtocol`: tests of a backend's own calls, with a launch that the subclass makes."""

# The names of the tests replace their docstrings.

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Timer

from kinetic.backends.backend import Backend, Launch
from kinetic.errors import SubmitError
from kinetic.job_status import JobStatus
from kinetic.jobs.records import find_outcome
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import Store


class BackendProtocol:
    """The calls of `Backend`, on jobs that run until they are stopped."""

    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        """Return a backend without jobs, and its store."""
        raise NotImplementedError

    def make_launch(self, store: Store) -> Launch:
        """Store a job that would run for a minute, as submit does, and return its launch."""
        raise NotImplementedError

    def test_a_job_that_never_started_is_unknown_and_harmless(self, tmp_path: Path) -> None:
        backend, store = self.make_backend(tmp_path)
        record = self.make_launch(store).record
        assert backend.observe(record).status is JobStatus.NOT_FOUND
        assert [job.job_id for job in backend.list()] == []
        assert [*backend.log_lines(record), *backend.log_lines(record, follow=True)] == []
        backend.stop(record, timeout=1, poll_interval=0.1)
        backend.stop(record, timeout=1, poll_interval=0.1, remove=True)
        backend.tidy([record])
        assert find_outcome(store, record.job_id) is None

    def test_a_job_starts_once_and_is_known_until_it_is_removed(self, tmp_path: Path) -> None:
        backend, store = self.make_backend(tmp_path)
        launch = self.make_launch(store)
        backend.start(launch)
        with suppress(SubmitError):
            backend.start(launch)
            raise AssertionError("The job started twice.")
        for each in (backend, backend.limited(OutageLimit(60))):
            assert [job.job_id for job in each.list()] == [launch.record.job_id]
            assert not each.observe(launch.record).status.terminal
        for _ in range(2):
            backend.stop(launch.record, timeout=30, poll_interval=0.1, remove=True)
            assert backend.observe(launch.record).status is JobStatus.NOT_FOUND
            assert [job.job_id for job in backend.list()] == []

    def test_a_job_that_is_announced_is_pending_and_unknown_again_if_it_does_not_start(
        self, tmp_path: Path
    ) -> None:
        backend, store = self.make_backend(tmp_path)
        launch = self.make_launch(store)
        with backend.announced(launch.record):
            assert backend.observe(launch.record).status is JobStatus.PENDING
        assert backend.observe(launch.record).status is JobStatus.NOT_FOUND
        with backend.announced(launch.record):
            backend.start(launch)
            assert not backend.observe(launch.record).status.terminal
        assert not backend.observe(launch.record).status.terminal
        backend.stop(launch.record, timeout=30, poll_interval=0.1, remove=True)
        assert backend.observe(launch.record).status is JobStatus.NOT_FOUND

    def test_a_stopped_job_has_ended_or_is_gone_and_is_stopped_again_in_peace(
        self, tmp_path: Path
    ) -> None:
        backend, store = self.make_backend(tmp_path)
        launch = self.make_launch(store)
        backend.start(launch)
        for _ in range(2):
            backend.stop(launch.record, timeout=30, poll_interval=0.1)
            assert backend.observe(launch.record).status.terminal
        found = find_outcome(store, launch.record.job_id)
        assert found is None or found.record.status == "cancelled"

    def test_waiting_ends_when_the_time_is_up(self, tmp_path: Path) -> None:
        backend, store = self.make_backend(tmp_path)
        launch = self.make_launch(store)
        backend.start(launch)
        with backend.watch([launch.record]) as watch:
            for _ in range(3):
                watch.wait(0.05)
                assert not backend.observe(launch.record).status.terminal
            Timer(0.05, watch.wake).start()
            watch.wait(None)
            assert not backend.observe(launch.record).status.terminal
        assert find_outcome(store, launch.record.job_id) is None
        backend.stop(launch.record, timeout=30, poll_interval=0.1, remove=True)
