from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from kinetic_payload.layout import Env, end_marker, is_end_marker
from kinetic_payload.records.signing import verify
from kinetic_runner.parent import main
from kinetic_runner.parent.memory import peak_memory

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


def test_a_success_is_reported_by_host_and_for_the_job(runner):
    done = runner.run("print('hello')")

    assert (done.code, done.output, done.log) == (0, b"hello\n", b"hello\n")
    assert done.outcome["succeeded"]
    assert set(done.outcome["phases"]) == {"claim", "fetch", "call"}
    assert (done.final["status"], done.final["host"]) == ("succeeded", 0)
    assert runner.read("job/attempts/1/host-0.claim")["attempt"] == 1


def test_the_final_outcome_vouches_for_the_bytes_of_the_hosts_outcome(runner):
    import hashlib

    done = runner.run("pass")

    written = (runner.store / "job/attempts/1/host-0.json").read_bytes()
    assert done.final["digest"] == hashlib.sha256(written).hexdigest()


def test_a_failure_leaves_the_final_outcome_to_somebody_else(runner):
    done = runner.run("raise ValueError('no')")

    assert done.code == 1
    assert done.outcome["reason"] == "exception"
    assert done.final is None


def evicted(runner, *flags):
    mark = runner.folder / f"there-{len(runner.started)}"
    process = runner.start(f"open({str(mark)!r}, 'w').write('.'); time.sleep(600)", *flags)
    runner.wait_for(mark)
    process.terminate()
    return process.wait(300)


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("os.kill(os.getpid(), 11)", 139)])
def test_node_devices_and_peak_memory_are_recorded_however_the_process_ends(runner, end, code):
    body = f"""
    tell({{"devices": "tpu:4"}})
    taken = b"." * 200_000_000
    {end}
    """
    environment = {**os.environ, Env.NODE_NAME: "node-7", Env.DEVICES: "tpu:4"}  # noqa: TID251

    done = runner.run(body, env=environment)

    assert done.outcome["exit_code"] == code
    assert done.outcome["node"] == "node-7"
    assert (done.outcome["devices_expected"], done.outcome["devices_seen"]) == ("tpu:4", "tpu:4")
    assert done.outcome["peak_memory"] >= 200_000_000


def test_outside_a_container_the_memory_is_that_of_the_largest_process():
    subprocess.run([sys.executable, "-c", "b'.' * 300_000_000"], check=True)

    assert peak_memory(in_container=False) >= 300_000_000


def test_a_leader_that_would_be_started_again_idles_and_never_runs_twice(runner, wait_until):
    flags = ("--idle-after-report", "--end-marker", "--retries", "1")
    ran = runner.folder / "ran"
    body = f"open({str(ran)!r}, 'a').write('x'); assert len(open({str(ran)!r}).read()) > 1"

    # A failure with a retry left: the system starts the container again.
    assert runner.run(body, *flags).code == 1
    process = runner.start(body, *flags)
    wait_until(lambda: is_end_marker(runner.output.read_text(), "job"))
    time.sleep(0.3)  # noqa: TID251 - it must not end
    assert process.poll() is None
    assert runner.read("job/outcome.json")["attempt"] == 2
    process.kill()  # its container
    process.wait()
    # The next one finds the job finished.
    process = runner.start(body, *flags, stderr=subprocess.PIPE)
    assert b"has ended already" in process.stderr.readline()
    time.sleep(0.3)  # noqa: TID251 - it must not end
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)

    assert runner.finish(process).code == 0
    assert ran.read_text() == "xx"


def test_a_failure_is_final_for_a_leader_that_idles_unless_retries_are_left(runner, wait_until):
    process = runner.start("raise ValueError", "--idle-after-report")
    wait_until(lambda: runner.read("job/outcome.json"))
    process.send_signal(signal.SIGTERM)

    done = runner.finish(process)
    assert (done.code, done.final["status"]) == (1, "failed")


def test_an_eviction_consumes_no_retry(runner):
    flags = ("--retries", "1", "--grace", "0.2")
    assert evicted(runner, *flags) == 143

    failed = runner.finish(runner.start("raise ValueError", *flags), attempt=2)
    assert (failed.code, failed.outcome["reason"], failed.final) == (1, "exception", None)

    again = runner.finish(runner.start("raise ValueError", *flags), attempt=3)
    assert (again.final["status"], again.final["attempt"]) == ("failed", 3)


def test_a_failure_consumes_no_preemption_and_one_disruption_too_many_ends_the_job(runner):
    flags = ("--preemptions", "1", "--retries", "5", "--grace", "0.2", "--end-marker")
    runner.run("raise ValueError", *flags)
    for _ in range(2):
        assert evicted(runner, *flags) == 143

    done = runner.run("print('ran')", *flags, stderr=subprocess.DEVNULL)

    assert (done.code, done.output) == (2, f"{end_marker('job', 4, 0)}\n".encode())
    assert (done.final["status"], done.final["attempt"]) == ("failed", 3)
    assert done.final["message"] == "Preempted 2 times; preemptions=1 allows 1."

    (runner.store / "job" / "outcome.json").unlink()
    reader, pipe = os.pipe()
    os.close(reader)
    unread = runner.start("print('ran')", *flags, stdout=pipe, stderr=subprocess.PIPE)
    os.close(pipe)
    said = unread.communicate()[1].decode()
    assert (unread.returncode, said) == (2, f"[kinetic] {done.final['message']}\n")


# What cannot be the job's own.


def test_a_job_goes_on_whatever_others_put_in_the_places_of_its_records(runner):
    key = bytes(range(32))
    environment = {**os.environ, Env.SIGNING_KEY: key.hex()}  # noqa: TID251
    names = ("outcome.json", "attempts/1/host-0.claim", "attempts/1/host-0.json")
    for name in (*names, *(f"attempts/{n}/host-0.claim" for n in (2, 3, 5000))):
        path = runner.store / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"status": "cancelled", "succeeded": false, "job_id": "job"}')

    done = runner.finish(runner.start("print('ran')", env=environment, stderr=subprocess.DEVNULL))

    assert (done.code, done.output) == (0, b"ran\n")
    assert done.final["status"] == "succeeded"
    for name in names:
        verify((runner.store / "job" / name).read_bytes(), key, name=f"job/{name}")
    again = runner.start("print('again')", env=environment, stderr=subprocess.DEVNULL)
    assert again.wait(300) == 0
    assert runner.output.read_bytes() == b""


def test_the_key_signs_the_outcome_and_is_not_seen_by_the_child(runner):
    key = bytes(range(32))
    body = f"""
        def seen(text):
            return {key.hex()!r} in text

        print(seen(str(os.environ)), seen(subprocess.run(
            ["env"], capture_output=True, text=True, check=True).stdout))
        if os.path.exists("/proc/self/environ"):
            assert not seen(open("/proc/self/environ").read())
    """

    environment = {**os.environ, Env.SIGNING_KEY: key.hex()}  # noqa: TID251
    process = runner.start(body, env=environment)
    done = runner.finish(process)

    assert (done.code, done.output) == (0, b"False False\n")
    verify((runner.store / "job/outcome.json").read_bytes(), key, name="job/outcome.json")


def test_a_key_that_is_none_is_refused_without_being_shown(runner):
    environment = {**os.environ, Env.SIGNING_KEY: "0x12"}  # noqa: TID251
    process = runner.start("pass", env=environment, stderr=subprocess.PIPE)

    said = process.communicate()[1].decode()

    assert process.returncode == 2
    assert Env.SIGNING_KEY in said
    assert "0x12" not in said


def test_the_name_of_the_keys_variable_is_that_of_the_layout():
    assert main.KEY_VARIABLE == Env.SIGNING_KEY


def test_each_run_takes_the_next_free_attempt(runner):
    for _ in range(3):
        runner.run("raise ValueError")

    assert sorted(p.name for p in (runner.store / "job/attempts").iterdir()) == ["1", "2", "3"]


def test_what_is_no_attempt_among_them_is_no_matter(runner):
    for name in ("1", "²", "٧", "x"):
        (runner.store / "job" / "attempts" / name).mkdir(parents=True)
        (runner.store / "job" / "attempts" / name / "host-0.claim").write_bytes(b"{}")

    runner.run("raise ValueError")

    assert (runner.store / "job" / "attempts" / "2" / "host-0.json").exists()


def test_a_job_that_has_ended_does_not_run_again(runner):
    runner.run("print('first')")

    again = runner.run("print('second')")

    assert (again.code, again.output) == (0, b"")
    (runner.store / "job" / "outcome.json").write_bytes(b"[]")
    unknown = runner.run("print('third')", stderr=subprocess.DEVNULL)
    assert (unknown.code, unknown.output) == (1, b"")


def test_an_attempt_is_run_once(runner):
    runner.run("raise ValueError", "--attempt", "1")

    again = runner.run("print('again')", "--attempt", "1", stderr=subprocess.DEVNULL)

    assert (again.code, again.output) == (2, b"")


def test_the_child_knows_which_attempt_it_is(runner):
    runner.run("raise ValueError")

    process = runner.start("print(os.environ['KINETIC_JOB_ID'], os.environ['KINETIC_ATTEMPT'])")

    assert runner.finish(process, attempt=2).output == b"job 2\n"


@pytest.mark.parametrize(
    "flags", [["--timeout", "soon"], ["--attempt", "0"], ["--nonsense", "1"], ["--grace"]]
)
def test_a_wrong_command_line_is_said_and_starts_nothing(runner, flags):
    process = runner.start("print('ran')", *flags, stderr=subprocess.PIPE)

    assert b"[kinetic] " in process.stderr.read()
    assert runner.finish(process).code == 2
    assert runner.output.read_bytes() == b""


# The line that ends a log.


@pytest.mark.parametrize("line", ["print('last')", "sys.stdout.write('last')", "pass"])
def test_the_marker_is_the_last_line_and_comes_once_the_outcome_is_stored(runner, line):
    outcome = runner.store / "job" / "outcome.json"
    process = runner.start(
        f"print('first'); {line}", "--end-marker", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
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


def test_a_failure_and_a_stop_end_with_the_marker_too(runner):
    done = runner.run("raise ValueError", "--end-marker")
    assert done.output.splitlines()[-1].decode() == end_marker("job", 1, 0)

    evicted(runner, "--end-marker", "--grace", "0.2")
    assert runner.output.read_bytes().decode() == f"{end_marker('job', 2, 0)}\n"


def test_what_could_not_be_stored_is_not_marked(runner):
    done = runner.run(
        f"import shutil; shutil.rmtree({str(runner.store)!r}); open({str(runner.store)!r}, 'w')",
        *("--end-marker", "--report-seconds", "0"),
        stderr=subprocess.DEVNULL,
    )

    assert (done.code, done.output) == (1, b"")


# Several hosts.


def test_several_hosts_number_their_attempts_by_the_restarts_of_all(runner):
    def started(host: int, restarts: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, Env.HOST_INDEX: str(host), Env.RESTART_ATTEMPT: restarts}  # noqa: TID251
        return runner.start("print('ran')", "--hosts", "2", env=environment)

    hosts = [started(host, "2") for host in (0, 1)]

    assert [process.wait(300) for process in hosts] == [0, 0]
    final = runner.read("job/outcome.json")
    assert (final["status"], final["attempt"]) == ("succeeded", 3)
    assert runner.read("job/attempts/3/host-1.claim")["attempt"] == 3


def test_a_host_that_has_finished_is_not_waited_for_where_hosts_are_replaced_alone(runner):
    def started(host: int, end: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, Env.HOST_INDEX: str(host)}  # noqa: TID251
        return runner.start(end, "--hosts", "2", "--grace", "0", env=environment)

    leader, other = started(0, "time.sleep(600)"), started(1, "pass")
    assert other.wait(300) == 0
    leader.kill()  # Its node is gone, and its index runs again.
    leader.wait()

    assert started(0, "pass").wait(300) == 2
    final = runner.read("job/outcome.json")
    assert (final["status"], final["attempt"]) == ("failed", 1)
    assert "Host 1 finished attempt 1 and cannot run again" in final["message"]


# How a process may end.


@pytest.mark.parametrize("code", [0, 3])
def test_os_exit_inside_the_function_is_a_failure_that_says_so(runner, code):
    done = runner.run(f"print('last words'); os._exit({code})")

    assert (done.code, done.log) == (1, b"last words\n")
    assert (done.outcome["reason"], done.outcome["phase"]) == ("exited", "call")
    assert f"exit code {code}" in done.outcome["message"]


def test_os_exit_before_the_call_means_that_nothing_was_prepared(runner):
    done = runner.run("os._exit(1)", phase="unpickle")

    assert (done.code, done.outcome["phase"]) == (2, "unpickle")


def test_a_crash_of_native_code_is_named(runner):
    done = runner.run("import ctypes; ctypes.string_at(0)")

    assert done.code == 128 + signal.SIGSEGV
    assert (done.outcome["reason"], done.outcome["signal"]) == ("killed", signal.SIGSEGV)
    assert "SIGSEGV" in done.outcome["message"]


@pytest.mark.parametrize("_half", [1, 2])
def test_no_line_is_lost_when_the_process_is_killed_right_after_it(runner, _half):
    lines = "".join(f"line {n}\n" for n in range(50)).encode()
    for n in range(25):
        job = f"job-{n}"
        process = runner.start(
            "for n in range(50): print('line', n)\nos.kill(os.getpid(), signal.SIGKILL)",
            job=job,
        )

        done = runner.finish(process, job=job)

        assert (done.code, done.output, done.log) == (137, lines, lines)


def test_a_sigkill_from_nowhere_mentions_memory(runner):
    done = runner.run("os.kill(os.getpid(), signal.SIGKILL)")

    assert (done.code, done.outcome["signal"]) == (137, signal.SIGKILL)
    assert "memory" in done.outcome["message"]


def test_threads_left_behind_do_not_keep_the_process(runner):
    done = runner.run("threading.Thread(target=time.sleep, args=(600,)).start()", linger=0.2)

    assert (done.code, done.outcome["succeeded"]) == (0, True)


def test_what_c_and_python_hold_back_is_flushed(runner):
    done = runner.run(
        """
        import ctypes
        sys.stdout = open(1, "w", buffering=65536, closefd=False)
        print("python")
        ctypes.CDLL(None).printf(b"c\\n")
        """
    )

    assert sorted(done.log.splitlines()) == [b"c", b"python"]


def test_exit_handlers_run(runner):
    done = runner.run("import atexit; atexit.register(print, 'put away')")

    assert (done.code, done.log) == (0, b"put away\n")


# What user code closes.


@pytest.mark.parametrize("end", ["pass", "raise ValueError", "os.fork() or time.sleep(600)"])
@pytest.mark.parametrize(
    "close", ["closerange(3, 65536)", "closerange(0, 65536)", "close(0)", "close(1)", "close(2)"]
)
def test_descriptors_that_user_code_closes_keep_nothing_from_being_reported(runner, close, end):
    done = runner.run(f"os.{close}\n{end}")

    succeeded = end != "raise ValueError"
    assert (done.code, done.outcome["succeeded"]) == (0 if succeeded else 1, succeeded)
    assert done.outcome["reason"] == ("returned" if succeeded else "exception")


def test_reports_never_get_into_a_file_that_has_the_number_of_their_pipe(runner):
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
    assert done.log == b"[kinetic] Warning: heard\n"
    assert path.read_bytes() == b""


def test_what_is_reported_without_a_pipe_is_heard_at_once(runner):
    done = runner.run(
        """
        os.closerange(3, 65536)
        import atexit
        atexit.register(time.sleep, 600)
        """,
        *("--timeout", "600"),
        linger=0.2,
    )

    assert (done.code, done.outcome["succeeded"]) == (0, True)
    assert b"exit handlers" in done.log


# Time limits and signals.


def test_a_function_that_takes_too_long_is_stopped(runner):
    done = runner.run("print('on'); time.sleep(600)", "--timeout", "0.2")

    assert done.code == 1
    assert (done.outcome["reason"], done.outcome["signal"]) == ("timeout", signal.SIGTERM)
    assert "0.2 s" in done.outcome["message"]


def test_the_time_limit_leaves_a_grace_to_save_in(runner):
    # The time counts from the call, and that from when the function is ready for its end.
    body = f"{SAVE_ON_SIGTERM}\n    tell({{'phase': 'call'}}); time.sleep(600)"
    done = runner.run(body, "--timeout", "0.2", phase="data")

    assert (done.code, done.outcome["reason"]) == (1, "timeout")
    assert done.log.endswith(b"saving\nsaved\n")


def test_who_ignores_the_end_of_its_time_is_killed(runner):
    done = runner.run(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell({'phase': 'call'}); time.sleep(600)",
        *("--timeout", "0.2", "--grace", "0.2"),
        phase="data",
    )

    assert (done.code, done.outcome["signal"]) == (1, signal.SIGKILL)
    assert "killed" in done.outcome["message"]


def test_the_time_limit_counts_from_the_call(runner):
    done = runner.run("time.sleep(0.6)", "--timeout", "0.1", phase="data")

    assert done.outcome["succeeded"]


@pytest.mark.parametrize("phase", ["fetch", "extract", "unpickle", "call", "report"])
def test_sigterm_ends_every_phase_with_a_word_but_never_the_job(runner, phase):
    mark = runner.folder / "there"
    process = runner.start(
        f"open({str(mark)!r}, 'w').write('.'); time.sleep(600)",
        *("--retries", "0", "--grace", "0.2"),
        phase=phase,
    )
    runner.wait_for(mark)

    process.terminate()
    done = runner.finish(process)

    assert done.code == 143
    assert (done.outcome["reason"], done.outcome["phase"]) == ("terminated", phase)
    times = [done.outcome[name] for name in ("started_at", "stopped_at", "finished_at")]
    assert times == sorted(times)
    assert done.final is None


@pytest.mark.parametrize("reports", ["pass", "raise ValueError"])
def test_what_a_function_ended_with_counts_if_sigterm_comes_while_it_is_reported(runner, reports):
    done = runner.run(
        f"""
        tell({{"phase": "report"}})
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(0.5)  # A signal that is passed on would kill this process.
        {reports}
        """,
    )

    succeeded = reports == "pass"
    assert (done.code, done.outcome["succeeded"]) == (0 if succeeded else 1, succeeded)
    assert done.outcome["reason"] == ("returned" if succeeded else "exception")
    assert (done.final is not None) == succeeded


def test_the_time_limit_is_none_for_reporting(runner):
    done = runner.run(
        "tell({'phase': 'report'}); time.sleep(0.5)", *("--timeout", "0.1"), phase="data"
    )

    assert done.outcome["succeeded"]


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


def test_sigterm_at_any_early_moment_leaves_no_process_and_no_lie(runner, is_alive, wait_until):
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


def test_user_code_hears_sigterm_and_has_time(runner):
    mark = runner.folder / "there"
    process = runner.start(
        f"{SAVE_ON_SIGTERM}\n    open({str(mark)!r}, 'w').write('.')\n    time.sleep(600)"
    )
    runner.wait_for(mark)

    process.terminate()
    done = runner.finish(process)

    assert (done.code, done.log) == (143, b"saving\nsaved\n")


def test_returning_early_after_sigterm_is_not_a_success(runner):
    mark = runner.folder / "there"
    process = runner.start(
        f"""
        asked = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        open({str(mark)!r}, "w").write(".")
        while not asked:
            time.sleep(0.01)
        """
    )
    runner.wait_for(mark)

    process.terminate()
    done = runner.finish(process)

    assert (done.code, done.outcome["succeeded"], done.final) == (143, False, None)
    assert "orderly" in done.outcome["message"]


# Who watches over it.


def test_the_end_of_the_lifeline_ends_everything_at_once(runner, is_alive, wait_until):
    mark = runner.folder / "pid"
    read_end, write_end = os.pipe()
    process = runner.start(
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("before")
        open({str(mark)!r}, "w").write(f"{{os.getpid()}}.")
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


def test_the_child_does_not_outlive_a_killed_runner(runner, is_alive, wait_until):
    mark = runner.folder / "pid"
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


# Output.


def test_output_is_kept_byte_by_byte_and_in_order(runner):
    done = runner.run(
        """
        everything = bytes(range(256)) * 64
        for n in range(100):
            stream = (sys.stdout, sys.stderr)[n % 2].buffer
            stream.write(b"%d:" % n + everything)
            stream.flush()
        """
    )

    everything = bytes(range(256)) * 64
    assert done.output == b"".join(b"%d:" % n + everything for n in range(100))
    assert done.log == done.output


def test_a_hundred_megabytes_of_output_need_no_memory(runner, tmp_path):
    done = runner.run(
        "block = b'x' * 1048575 + b'\\n'\nfor _ in range(100): sys.stdout.buffer.write(block)",
        wrapper=[sys.executable, "-c", PEAK, str(tmp_path / "peak")],
    )

    assert len(done.output) == len(done.log) == 100 * 1048576
    unit = 1 if sys.platform == "darwin" else 1024
    assert int((tmp_path / "peak").read_text()) * unit < 100 * 1024 * 1024
    chunks = list((runner.store / "logs/job/1/host-0").iterdir())
    assert max(path.stat().st_size for path in chunks) <= 4 * 1024 * 1024


def test_a_reader_that_went_away_does_not_disturb_the_job(runner):
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = runner.start("for n in range(1000): print(n)", stdout=write_end)
    os.close(write_end)

    done = runner.finish(process)

    assert done.code == 0
    assert done.log == b"".join(b"%d\n" % n for n in range(1000))


def test_a_reader_that_does_not_read_cannot_keep_the_job_from_its_time_limit(runner):
    read_end, write_end = os.pipe()
    process = runner.start(
        "while True: os.write(1, b'x' * 65536)",
        *("--timeout", "0.5", "--grace", "0.5"),
        stdout=write_end,
    )
    os.close(write_end)
    try:
        done = runner.finish(process)
    finally:
        os.close(read_end)

    assert (done.code, done.outcome["reason"]) == (1, "timeout")


def test_warnings_of_the_child_are_lines_of_their_own(runner):
    done = runner.run("sys.stdout.write('half'); tell({'warning': 'mind'})")

    assert done.log == b"half\n[kinetic] Warning: mind\n"


def test_noise_on_the_report_pipe_is_not_believed(runner):
    done = runner.run("os.write(int(sys.argv[-1]), b'{\"outcome\": 7}\\nnonsense\\n\\xff\\n[]\\n')")

    assert done.outcome["succeeded"]
