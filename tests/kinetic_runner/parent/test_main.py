"""The runner as a process: its child, its signals, its output, its exit code. test_report.py has the table of ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from kinetic_payload.layout import Env, end_marker, is_end_marker
from kinetic_payload.records.signing import verify

SAVE_ON_SIGTERM = """
    def save(*_):
        print("saving", flush=True)
        time.sleep(0.3)
        print("saved", flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, save)
"""

# A forked process starts with the peak of the one before it: hence a small one in between.
PEAK = """
import os, sys
if pid := os.fork():
    _, status, usage = os.wait4(pid, 0)
    open(sys.argv[1], "w").write(str(usage.ru_maxrss))
    sys.exit(os.waitstatus_to_exitcode(status))
os.execv(sys.argv[2], sys.argv[2:])
"""


IDLE = "--idle-after-report"


@pytest.fixture
def ready(tmp_path):
    """A file, and the code by which a function reports there that it runs."""
    path = tmp_path / "ready"
    return path, f"open({str(path)!r}, 'w').write(f'{{os.getpid()}}.')"


# What a runner leaves


def test_a_success_is_reported_for_the_host_and_for_the_job(runner):
    done = runner.run("print('hello')")

    assert (done.code, done.output, done.log) == (0, b"hello\n", b"hello\n")
    assert done.outcome["succeeded"]
    assert set(done.outcome["phases"]) == {"claim", "fetch", "call"}
    assert (done.final["status"], done.final["host"]) == ("succeeded", 0)
    assert runner.read("job/attempts/1/host-0.claim")["attempt"] == 1

    again = runner.run("print('again')")
    assert (again.code, again.output) == (0, b"")


def test_pod_node_devices_and_peak_memory_are_recorded_also_if_the_process_is_killed(runner):
    body = """
    tell({"devices": "tpu:4"})
    taken = b"." * 200_000_000
    os.kill(os.getpid(), 11)
    """
    given = {Env.NODE_NAME: "node-7", Env.POD_NAME: "pod-7", Env.DEVICES: "tpu:4"}
    environment = {**os.environ, **given}  # noqa: TID251

    done = runner.run(body, env=environment)

    assert (done.outcome["exit_code"], done.outcome["node"]) == (139, "node-7")
    # A pod on its node's network has the node's host name.
    assert runner.read("job/attempts/1/host-0.claim")["hostname"] == "pod-7"
    assert (done.outcome["devices_expected"], done.outcome["devices_seen"]) == ("tpu:4", "tpu:4")
    assert done.outcome["peak_memory"] >= 200_000_000


def test_each_run_is_the_next_attempt_and_no_attempt_runs_twice(runner):
    body = "print(os.environ['KINETIC_JOB_ID'], os.environ['KINETIC_ATTEMPT']); raise ValueError"
    for attempt in (1, 2):
        done = runner.finish(runner.start(body), attempt=attempt)
        assert (done.code, done.final, done.outcome["reason"]) == (1, None, "exception")
        assert done.output.startswith(b"job %d\n" % attempt)

    again = runner.run(body, "--attempt", "1", stderr=subprocess.DEVNULL)

    assert (again.code, again.output) == (2, b"")


# Further attempts


def evicted(runner, **record):
    mark = runner.folder / f"ready-{len(runner.started)}"
    process = runner.start(
        f"open({str(mark)!r}, 'w').write('.'); time.sleep(600)", "--grace", "0.2", **record
    )
    runner.wait_for(mark)
    process.terminate()
    return process.wait(300)


def test_an_idle_leader_keeps_its_container_once_the_job_has_ended(runner, wait_until):
    record = {"workload": "LeaderWorkerSet", "retries": 1}
    ran = runner.folder / "ran"
    body = f"open({str(ran)!r}, 'a').write('x'); assert len(open({str(ran)!r}).read()) > 1"

    # A failure with a retry left: the system starts the container again.
    assert runner.run(body, IDLE, **record).code == 1
    process = runner.start(body, IDLE, **record)
    wait_until(lambda: is_end_marker(runner.output.read_text(), "job"))
    time.sleep(0.3)  # noqa: TID251 - it must not end
    assert process.poll() is None
    assert runner.read("job/outcome.json")["attempt"] == 2
    process.kill()  # its container
    process.wait()
    # The next one finds the job finished.
    process = runner.start(body, IDLE, **record, stderr=subprocess.PIPE)
    assert b"has ended already" in process.stderr.readline()
    time.sleep(0.3)  # noqa: TID251 - it must not end
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)

    assert runner.finish(process).code == 0
    assert ran.read_text() == "xx"


def test_evictions_use_up_no_retry_and_one_more_than_allowed_ends_the_job(runner):
    record = {"workload": "Job", "preemptions": 1, "retries": 1}
    assert runner.run("raise ValueError", **record).final is None
    for _ in range(2):
        assert evicted(runner, **record) == 143

    done = runner.run("print('ran')", **record, stderr=subprocess.DEVNULL)

    assert (done.code, done.output) == (2, f"{end_marker('job', 4, 0)}\n".encode())
    assert (done.final["status"], done.final["attempt"]) == ("failed", 3)
    assert done.final["message"] == "Preempted 2 times; preemptions=1 allows 1."


# The key


def test_the_key_signs_the_records_past_forged_ones_and_the_child_does_not_get_it(runner):
    key = bytes(range(32))
    environment = {**os.environ, Env.SIGNING_KEY: key.hex()}  # noqa: TID251
    names = ("outcome.json", "attempts/1/host-0.claim", "attempts/1/host-0.json")
    for name in names:
        path = runner.store / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"status": "cancelled", "succeeded": false, "job_id": "job"}')
    body = f"""
        def seen(text):
            return {key.hex()!r} in text

        print(seen(str(os.environ)), seen(subprocess.run(
            ["env"], capture_output=True, text=True, check=True).stdout))
        if os.path.exists("/proc/self/environ"):
            assert not seen(open("/proc/self/environ").read())
    """

    done = runner.run(body, env=environment, stderr=subprocess.DEVNULL)

    assert (done.code, done.output) == (0, b"False False\n")
    assert done.final["status"] == "succeeded"
    for name in names:
        verify((runner.store / "job" / name).read_bytes(), key, name=f"job/{name}")


# The line that ends a log


@pytest.mark.parametrize("line", ["print('last')", "sys.stdout.write('last')", "pass"])
def test_the_marker_is_the_last_line_and_is_printed_once_the_outcome_is_stored(runner, line):
    outcome = runner.store / "job" / "outcome.json"
    process = runner.start(
        f"print('first'); {line}",
        workload="Job",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    lines = []
    for shown in process.stdout:
        lines.append(shown.decode())
        if is_end_marker(lines[-1], "job"):
            assert outcome.exists()
            break

    assert process.stdout.read() == b""
    assert lines == ["first\n", *["last\n"] * (line != "pass"), f"{end_marker('job', 1, 0)}\n"]
    assert b"kinetic" not in runner.finish(process).log


def test_a_failure_and_a_stop_are_marked_and_an_outcome_that_could_not_be_stored_is_not(runner):
    record = {"workload": "Job", "retries": 1}
    done = runner.run("raise ValueError", **record)
    assert done.output.splitlines()[-1].decode() == end_marker("job", 1, 0)

    evicted(runner, **record)
    assert runner.output.read_bytes().decode() == f"{end_marker('job', 2, 0)}\n"

    done = runner.run(
        f"import shutil; shutil.rmtree({str(runner.store)!r}); open({str(runner.store)!r}, 'w')",
        *("--report-seconds", "0"),
        **record,
        stderr=subprocess.DEVNULL,
    )
    assert (done.code, done.output) == (1, b"")


# Several hosts


def test_a_job_whose_hosts_are_replaced_alone_ends_if_one_has_finished(runner):
    def start(host, body):
        environment = {**os.environ, Env.HOST_INDEX: str(host)}  # noqa: TID251
        return runner.start(body, "--grace", "0", env=environment, hosts=2, workload="Job")

    leader, other = start(0, "time.sleep(600)"), start(1, "pass")
    assert other.wait(300) == 0
    leader.kill()  # Its node is gone, and its index runs again.
    leader.wait()

    assert start(0, "pass").wait(300) == 2
    final = runner.read("job/outcome.json")
    assert (final["status"], final["attempt"]) == ("failed", 1)
    assert "Host 1 finished attempt 1 and cannot run again" in final["message"]


# How a process may end. test_exit_code.py has the table of all ends.

IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell({'phase': 'call'}); time.sleep(600)"


@pytest.mark.parametrize(
    ("body", "phase", "timeout", "code", "reason", "words"),
    [
        ("os._exit(0)", "call", None, 1, "exited", "exit code 0"),
        ("import ctypes; ctypes.string_at(0)", "call", None, 139, "killed", "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "call", None, 137, "killed", "counted no kill|possibly"),
        ("time.sleep(600)", "call", 0.2, 1, "timeout", "0.2 s"),
        (IGNORE, "data", 0.2, 1, "timeout", "killed"),
    ],
)
def test_the_outcome_names_how_the_process_ended(runner, body, phase, timeout, code, reason, words):
    body = f"print('last words')\n{body}"
    done = runner.run(body, "--grace", "0.2", phase=phase, timeout=timeout)

    assert (done.code, done.outcome["exit_code"]) == (code, code)
    assert (done.outcome["reason"], done.log.splitlines()[0]) == (reason, b"last words")
    assert re.search(words, done.outcome["message"])
    assert done.final is None


def test_no_line_is_lost_if_the_process_is_killed_right_after_it(runner):
    lines = "".join(f"line {n}\n" for n in range(50)).encode()
    for n in range(4):
        job = f"job-{n}"
        process = runner.start(
            "for n in range(50): print('line', n)\nos.kill(os.getpid(), signal.SIGKILL)",
            job=job,
        )

        done = runner.finish(process, job=job)

        assert (done.code, done.output, done.log) == (137, lines, lines)


@pytest.mark.parametrize(
    ("close", "end", "succeeded"),
    [
        ("closerange(3, 65536)", "raise ValueError", False),
        ("closerange(3, 65536)", "os.fork() or time.sleep(600)", True),
        ("closerange(0, 65536)", "pass", True),
        ("close(2)", "os.fork() or time.sleep(600)", True),
    ],
)
def test_the_end_is_reported_whatever_descriptors_user_code_closes(runner, close, end, succeeded):
    done = runner.run(f"os.{close}\n{end}")

    assert (done.code, done.outcome["succeeded"]) == (0 if succeeded else 1, succeeded)
    assert done.outcome["reason"] == ("returned" if succeeded else "exception")


def test_reports_are_not_written_to_a_file_with_the_number_of_their_pipe(runner):
    path = runner.folder / "mine"
    done = runner.run(
        f"""
        os.closerange(3, 65536)
        fd = os.open({str(path)!r}, os.O_CREAT | os.O_WRONLY)
        for number in range(fd + 1, 64):
            os.dup2(fd, number)
        tell({{"warning": "heard"}})
        """
    )

    assert done.outcome["succeeded"]
    assert done.log == b"\x10\x02[kinetic] Warning: heard\n"
    assert path.read_bytes() == b""


@pytest.mark.parametrize("before", ["pass", "os.closerange(3, 65536)"])
def test_exit_handlers_that_do_not_end_are_cut_off_also_without_a_pipe(runner, before):
    body = f"{before}; import atexit; atexit.register(time.sleep, 600)"
    done = runner.run(body, timeout=600, linger=0.2)

    assert (done.code, done.outcome["succeeded"]) == (0, True)
    assert b"exit handlers" in done.log


# Time limits and signals


def test_the_time_limit_counts_only_the_call_and_leaves_a_grace_to_save_state(runner):
    for phase in ("data", "report"):
        body = f"tell({{'phase': {phase!r}}}); time.sleep(0.4)"
        assert runner.run(body, timeout=0.1, phase="data", job=phase).code == 0

    body = f"{SAVE_ON_SIGTERM}\n    tell({{'phase': 'call'}}); time.sleep(600)"
    done = runner.run(body, timeout=0.2, phase="data")

    assert (done.code, done.outcome["reason"]) == (1, "timeout")
    assert done.log.endswith(b"saving\nsaved\n")


@pytest.mark.parametrize("phase", ["fetch", "call", "report"])
def test_sigterm_in_any_phase_is_reported_and_does_not_end_the_job(runner, ready, phase):
    mark, body = ready
    process = runner.start(
        f"{body}; time.sleep(600)", "--grace", "0.2", phase=phase, workload="Job"
    )
    runner.wait_for(mark)

    process.terminate()
    done = runner.finish(process)

    assert done.code == 143
    assert (done.outcome["reason"], done.outcome["phase"]) == ("terminated", phase)
    times = [done.outcome[name] for name in ("started_at", "stopped_at", "finished_at")]
    assert times == sorted(times)
    assert done.final is None


def test_sigterm_leaves_exit_handlers_the_grace(runner):
    done = runner.run(
        """
        import atexit
        def put_away():
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(0.5)
            print("put away")
        atexit.register(put_away)
        """,
        linger=600,
    )

    assert (done.code, done.log) == (0, b"put away\n")


def test_sigterm_at_any_early_moment_leaves_no_process_and_a_report_of_each_claim(runner, is_alive):
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05, 0.08):
        mark = runner.folder / f"pid-{delay}"
        process = runner.start(
            f"open({str(mark)!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(600)",
            job=f"job-{delay}",
        )
        time.sleep(delay)  # noqa: TID251

        process.terminate()

        assert process.wait(300) in (143, -signal.SIGTERM)
        outcome = runner.read(f"job-{delay}/attempts/1/host-0.json")
        claimed = runner.read(f"job-{delay}/attempts/1/host-0.claim")
        assert (outcome is None) == (claimed is None)
        written = mark.read_text() if mark.exists() else ""  # Nothing, if it died as it wrote.
        assert not written or not is_alive(int(written.removesuffix(".")))


# The supervisor


def test_the_end_of_the_lifeline_kills_the_function_at_once(runner, ready, is_alive):
    mark, body = ready
    read_end, write_end = os.pipe()
    process = runner.start(
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("before")
        {body}
        time.sleep(600)
        """,
        *("--lifeline", str(read_end)),
        pass_fds=[read_end],
    )
    os.close(read_end)
    pid = int(runner.wait_for(mark))

    os.close(write_end)
    done = runner.finish(process)

    assert done.code == 143
    assert not is_alive(pid)
    assert (done.outcome["reason"], done.log) == ("terminated", b"before\n")
    assert "supervisor" in done.outcome["message"]


def test_no_process_outlives_a_killed_runner(runner, tmp_path, is_alive, wait_until):
    mark = tmp_path / "pids"
    process = runner.start(
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        worker = subprocess.Popen(["sleep", "600"])
        open({str(mark)!r}, "w").write(f"{{os.getpid()}} {{worker.pid}}.")
        time.sleep(600)
        """
    )
    pids = [int(pid) for pid in runner.wait_for(mark).split()]

    process.kill()

    wait_until(lambda: not any(is_alive(pid) for pid in pids))


# Output


def test_a_hundred_megabytes_of_output_need_no_memory(runner, tmp_path):
    done = runner.run(
        "block = b'x' * 1048575 + b'\\n'\nfor _ in range(100): sys.stdout.buffer.write(block)",
        wrapper=[sys.executable, "-c", PEAK, str(tmp_path / "peak")],
    )

    logs = [log.replace(b"\x10\n", b"") for log in (done.output, done.log)]
    assert [len(log) for log in logs] == [100 * 1048576] * 2
    unit = 1 if sys.platform == "darwin" else 1024
    assert int((tmp_path / "peak").read_text()) * unit < 100 * 1024 * 1024
    chunks = list((runner.store / "logs/job/1/host-0").iterdir())
    assert max(path.stat().st_size for path in chunks) <= 4 * 1024 * 1024


def test_a_closed_reader_does_not_disturb_the_job(runner):
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = runner.start("for n in range(1000): print(n)", stdout=write_end)
    os.close(write_end)

    done = runner.finish(process)

    assert done.code == 0
    assert done.log == b"".join(b"%d\n" % n for n in range(1000))


def test_a_reader_that_does_not_read_does_not_delay_the_time_limit(runner):
    read_end, write_end = os.pipe()
    process = runner.start(
        "while True: os.write(1, b'x' * 65536)",
        *("--grace", "0.5"),
        timeout=0.5,
        stdout=write_end,
    )
    os.close(write_end)
    try:
        done = runner.finish(process)
    finally:
        os.close(read_end)

    assert (done.code, done.outcome["reason"]) == (1, "timeout")
