"""Watch a child to its end: its output, its reports, time limits, signals, and processes it leaves behind."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, time
from typing import Any, Final, get_args

from kinetic_payload.files.private import make_folder, open_private
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import RAISED, STDERR_MARK
from kinetic_payload.lifeline import FAILED, OTHERS_GONE, STOP
from kinetic_payload.processes import KILL_SECONDS, kill_tree
from kinetic_payload.records.host_outcome import HostOutcome, Phase
from kinetic_runner.parent.child_process import Child, pipe_capacity, read_available
from kinetic_runner.parent.exit_code import Cause, ChildEnd, outcome_from
from kinetic_runner.parent.log_upload import LogUploader
from kinetic_runner.parent.memory import oom_kills
from kinetic_runner.parent.signals import SelfPipe
from kinetic_runner.parent.streams import MergedStreams
from kinetic_runner.parent.tee import Tee
from kinetic_runner.parent.usage import UsageRecorder, chips_in

_PHASES: Final = get_args(Phase)
_POLL_SECONDS: Final = 1.0
"""Maximum seconds between two checks of everything, even if nothing wakes the parent."""
_HELD_BACK: Final = 0.05
_MAX_REPORT: Final = 16 * 1024 * 1024
_LAST_PART: Final = 1 / 3
"""The share of the grace that is left when a stop is requested, after the time to save state."""
_TRACKER_SECONDS: Final = 2.0
"""For resource trackers of `multiprocessing` to remove their resources."""
_REQUESTS_AFTER: Final = (0.1, 1.0)
"""Seconds after SIGTERM at which a stop is requested through the pipe as well. Not at once: where there are
threads, the thread that takes a second signal also takes the first, and does not wake the main thread."""


@frozen(kw_only=True)
class TimeLimits:
    """How long each step may take, in seconds."""

    timeout: float | None = None
    """For the function, from the start of the phase `call`."""
    grace: float = 30.0
    """Between SIGTERM and SIGKILL."""
    linger: float = 10.0
    """Between a reported outcome and the end of the process: for threads and exit handlers."""
    linger_after_failure: float = 10.0
    """The same after a failure, for which other hosts wait."""
    remains: float = KILL_SECONDS
    """For killed processes to end."""


class Watch:
    """Watches one child. `run` returns when the child and all processes that it started have ended."""

    def __init__(
        self,
        child: Child,
        signals: SelfPipe,
        *,
        tee: Tee,
        log: LogUploader,
        limits: TimeLimits,
        lifeline: int | None = None,
        report_file: str = os.devnull,
        stop_file: str = os.devnull,
        on_loaded: Callable[[str, str], object] | None = None,
        usage: UsageRecorder | None = None,
    ) -> None:
        self.tee = tee
        self._child = child
        self._signals = signals
        self._log = log
        self._limits = limits
        self._lifeline = lifeline
        self._report_file = report_file
        self._stop_file = stop_file
        self._on_loaded = on_loaded
        self._usage = usage
        self._report_read = 0
        self._phase: Phase = "fetch"
        self._phase_began = monotonic()
        self._phases: dict[str, float] = {}
        self._cause: Cause | None = None
        self._stopped_at: float | None = None
        self._killed = False
        self._reported: HostOutcome | None = None
        self._interrupted = False
        """Whether the function was stopped before it had ended."""
        self._warnings: list[str] = []
        self._devices_seen: str | None = None
        self._unread = b""
        self._streams = MergedStreams()
        self._call_until: float | None = None
        self._kill_at: float | None = None
        self._requests_at: list[float] = []
        self._stop_now = False
        """Whether the supervisor requests a stop at once. A SIGTERM of the system leaves time instead."""
        self._leaving_time = False
        """Whether the function has time to save its state before a stop is requested."""
        self._others_gone = False
        self._sigterm_native = False
        self._sigterm_sent = False
        self._parting = ""
        self._linger = limits.linger
        self._give_up_at: float | None = None
        self._open: dict[int, Callable[[bytes], object]] = {
            child.output: self._write,
            child.errors: self._write_errors,
            child.report: self._handle_lines,
        }
        """What takes the data of each pipe that has not ended."""

    def run(self) -> ChildEnd:
        """Watch the child to its end."""
        kills_before = oom_kills()
        while not self._child.reap() and self._cause != "orphaned":
            # A child that was killed a while ago but still exists is stuck in the kernel.
            if self._give_up_at is not None and monotonic() >= self._give_up_at:
                break
            self._act_on_time()
            self._wait()
        self._report_failure()
        kills = oom_kills()
        self._read_rest()
        self._kill_remains()
        self._read_rest()
        self._store_and_show(self._streams.end())
        if self._unread:
            self._handle(self._unread)
        self._end_phase()
        return ChildEnd(
            phase=self._phase,
            # A child that only waited for other hosts had already finished; how it was killed is irrelevant.
            status=self._child.status if not self._parting else 0,
            reported=self._reported,
            reported_in_time=not self._interrupted,
            cause=self._cause,
            stopped_at=self._stopped_at,
            killed_by_parent=self._killed,
            timeout=self._limits.timeout,
            grace=self._limits.grace,
            devices_seen=self._devices_seen,
            oom_killed=None if kills_before is None or kills is None else kills > kills_before,
            phases=self._phases,
            warnings=tuple(self._warnings),
        )

    def log_line(self, text: str) -> None:
        """Add a line of Kinetic's own to the log."""
        start = "\n" if STDERR_MARK in self._streams.unfinished else ""
        line = f"{start}[kinetic] {text}\n".encode(errors="backslashreplace")
        self._write(line, stream=STDERR_MARK)

    def mark_end(self, line: str) -> None:
        """Print *line* after all output on the live log; the stored log does not contain it."""
        self.tee.write(f"{'' if self._streams.at_line_start else chr(10)}{line}\n".encode())

    # Events and time limits.

    def _wait(self) -> None:
        held_back = self.tee.full or self._log.full
        output = (self._child.output, self._child.errors)
        readers = [fd for fd in self._open if not (held_back and fd in output)]
        readers.append(self._signals.fd)
        if self._lifeline is not None:
            readers.append(self._lifeline)
        writers = [self.tee.fd] if self.tee.waiting else []
        now = monotonic()
        alarms = [self._call_until, self._kill_at, *self._requests_at[:1]]
        waits = [max(0.0, alarm - now) for alarm in alarms if alarm is not None]
        waits += [due for due in (self._log.due_in, self._streams.due_in) if due is not None]
        seconds = min([_HELD_BACK if held_back else _POLL_SECONDS, *waits])
        ready, writable, _ = select.select(readers, writers, [], seconds)
        if writable:
            self.tee.write_waiting()
        for fd in ready:
            if fd in self._open:
                self._read(fd)
        if self._signals.fd in ready:
            self._signals.read()
        if self._lifeline in ready:
            self._read_lifeline()
        self._store_and_show(self._streams.split())
        self._log.send_due()

    def _read_lifeline(self) -> None:
        """Read the supervisor's messages; the lifeline closes when the supervisor ends."""
        try:
            messages = os.read(self._lifeline or 0, 512)
        except ConnectionError:  # The supervisor was killed before it read everything.
            messages = b""
        if not messages:
            self._lifeline = None
            self._drain(self._child.report)
            # If the function has ended, the runner continues, however long the store takes: a client that finds
            # the supervisor dead waits for the report.
            if self._interrupted or (self._reported is None and self._phase != "report"):
                self._interrupted = True
                self._cause = "orphaned"
        self._stop_now = self._stop_now or STOP in messages
        self._others_gone = self._others_gone or OTHERS_GONE in messages

    def _report_failure(self) -> None:
        """Report a failure to the supervisor early, so that it can stop the other hosts."""
        if self._lifeline is not None and not (self._reported and self._reported.succeeded):
            # The lifeline of a single host is the read end of a pipe: this write fails.
            with suppress(OSError):
                os.write(self._lifeline, FAILED)

    def _act_on_time(self) -> None:
        self._read_report_file()
        now = monotonic()
        if self._stopping or (self._call_until is not None and now >= self._call_until):
            # A report that the child has sent by now counts, even if it is read late.
            self._drain(self._child.report)
        if self._stop_now and self._leaving_time:
            self._leaving_time = False
            self._request_after(now)
        if self._stopping and self._cause is None:
            if self._reported is None:
                self._stop("terminated", now=self._stop_now)
            else:
                # The outcome is known. Threads and exit handlers get no more time than the grace.
                until = now + self._limits.grace
                self._kill_at = min(self._kill_at or until, until)
        if self._call_until is not None and now >= self._call_until:
            self._call_until = None
            if self._cause is None and self._reported is None:
                self.log_line(f"The time limit of {self._limits.timeout:g} s is reached.")
                self._stop("timeout", now=True)
        if self._requests_at and monotonic() >= self._requests_at[0]:
            del self._requests_at[0]
            with suppress(OSError):
                make_folder(os.path.dirname(self._stop_file))  # noqa: PTH120
                os.close(open_private(self._stop_file, os.O_WRONLY | os.O_CREAT))
            self._child.request_stop()
        if self._has_parted or (self._kill_at is not None and now >= self._kill_at):
            self._kill_at = None
            self._killed = not self._parting
            if self._reported is not None and not (self._cause or self._stopping or self._parting):
                self.log_line(
                    f"The function has ended, but its threads and exit handlers took more than "
                    f"{self._linger:g} s: the process is killed."
                )
            self._child.signal(signal.SIGKILL)  # `_kill_remains` kills its group later.
            self._give_up_at = now + self._limits.remains

    @property
    def _stopping(self) -> bool:
        return self._signals.stop_requested or self._stop_now

    @property
    def _has_parted(self) -> bool:
        """Whether a child that only waits for other hosts can be killed, as its wait is over."""
        if not self._parting or self._give_up_at is not None:
            return False
        return self._others_gone or (self._stop_now and self._parting == "together")

    def _stop(self, cause: Cause, *, now: bool) -> None:
        """Stop the child because of *cause*: *now*, or after most of the grace, in which it can save its state.

        This makes a difference only where native code handles SIGTERM. JAX reports the signal to checkpoint
        libraries as a preemption, and the function continues until a stop is requested.
        """
        self._cause = cause
        self._stopped_at = time()
        grace = self._limits.grace
        self._kill_at = monotonic() + grace
        if self._phase == "report":
            return  # The function has ended: nothing is left to stop, and its value is being stored.
        self._interrupted = True
        # Signal only the child: its worker processes must not end while it saves its state.
        if not (now and self._sigterm_native):
            self._sigterm_sent = True
            self._child.signal(signal.SIGTERM)
        self._leaving_time = not now
        self._request_after(monotonic() if now else self._kill_at - grace * _LAST_PART)

    def _request_after(self, start: float) -> None:
        after = (0.0,) if self._sigterm_native else _REQUESTS_AFTER
        self._requests_at = [start + seconds for seconds in after]

    # Output.

    def _read(self, fd: int) -> int:
        """Read what is in a pipe now; return how much it was."""
        data = read_available(fd)
        if data == b"":
            del self._open[fd]
        if not data:
            return 0
        self._open[fd](data)
        return len(data)

    def _write(self, data: bytes, stream: str = "") -> None:
        self._store_and_show(self._streams.add(data, stream))

    def _write_errors(self, data: bytes) -> None:
        # A progress bar may not have ended its line, and readers look for this one.
        before, raised, rest = data.partition(RAISED.encode())
        if (
            raised
            and not before.endswith(b"\n")
            and (before or STDERR_MARK in self._streams.unfinished)
        ):
            before += b"\n"
        self._write(before + raised + rest, STDERR_MARK)

    def _store_and_show(self, data: bytes) -> None:
        if data:
            self._log.append(data)
            self.tee.write(data)

    def _drain_output(self) -> None:
        self._drain(self._child.output)
        self._drain(self._child.errors)

    def _read_rest(self) -> None:
        """Read all that is in the pipes, without waiting for their end: other processes may hold them open.

        What the child wrote is in the pipe by now, so no more is read than a pipe can hold: other
        processes may go on writing.
        """
        for fd in list(self._open):
            self._drain(fd)
        self._read_report_file()

    def _drain(self, fd: int) -> None:
        left = pipe_capacity(fd)
        while fd in self._open and left > 0 and (size := self._read(fd)):
            left -= size

    def _kill_remains(self) -> None:
        def pause() -> None:
            # SIGCHLD ends this wait. The time limit is for processes that only the next round finds.
            select.select([self._signals.fd], [], [], 0.02)
            self._signals.read()
            self._drain_output()  # No process must block because its output is not read.

        kill_tree(self._child.kill_all_but_trackers, pause=pause, seconds=_TRACKER_SECONDS)
        self._child.supervised = self._lifeline is not None
        kill_tree(self._child.kill_descendants, pause=pause, seconds=self._limits.remains)

    # Reports.

    def _read_report_file(self) -> None:
        """Read new lines of the file to which the child reports once user code has closed its pipe."""
        try:
            with open(self._report_file, "rb") as stream:  # noqa: PTH123  # most often it is not there
                stream.seek(self._report_read)
                data = stream.read()
        except OSError:
            return
        if data and not self._report_read:
            self._drain(self._child.report)  # The pipe has the earlier reports.
            self._unread = b""
        self._report_read += len(data)
        self._handle_lines(data)

    def _handle_lines(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > _MAX_REPORT:
            self._unread = b""
        for line in lines:
            self._handle(line)

    def _handle(self, line: bytes) -> None:
        try:
            message: Any = json.loads(line)
        except ValueError:
            return  # User code wrote to this pipe, or the child ended in the middle of a line.
        if not isinstance(message, dict):
            return
        if self._reported is not None and "parting" not in message:
            return
        if "sigterm" in message:
            self._sigterm_native = True
        if "undisturbed" in message and not (self._sigterm_native and self._sigterm_sent):
            # The function had ended before the stop. Where native code handles SIGTERM, Python cannot know
            # that.
            self._interrupted = False
        if "parting" in message:
            self._parting = str(message["parting"])
            if self._parting == "last":
                self._kill_at = monotonic() + self._limits.grace
        if message.get("phase") in _PHASES:
            self._end_phase()
            self._phase = message["phase"]
            if self._phase == "call" and self._limits.timeout is not None:
                self._call_until = monotonic() + self._limits.timeout
            if self._phase == "report":
                # The function has ended: storing its value does not count as its time.
                self._call_until = None
        if "devices" in message:
            self._devices_seen = str(message["devices"])
        if self._usage is not None and "chips" in message:
            self._usage.chips = chips_in(message["chips"])
        loaded = message.get("loaded")
        # User code may write to this pipe, too.
        if self._on_loaded is not None and isinstance(loaded, list) and len(loaded) == 2:
            self._on_loaded(*map(str, loaded))
        if "warning" in message:
            self._warnings.append(str(message["warning"]))
            self._drain_output()  # This came before the warning.
            self.log_line(f"Warning: {message['warning']}")
        if "outcome" in message:
            self._take_outcome(message["outcome"])

    def _end_phase(self) -> None:
        now = monotonic()
        took = now - self._phase_began
        self._phases[self._phase] = round(self._phases.get(self._phase, 0.0) + took, 6)
        self._phase_began = now

    def _take_outcome(self, message: Any) -> None:
        try:
            self._reported = outcome_from(message)
        except TypeError as error:
            self._warnings.append(f"The child's report cannot be read: {error}.")
            return
        self._call_until = None
        limits = self._limits
        self._linger = limits.linger if self._reported.succeeded else limits.linger_after_failure
        linger = monotonic() + self._linger
        self._kill_at = min(self._kill_at or linger, linger)
        if not self._reported.succeeded:
            self._report_failure()
