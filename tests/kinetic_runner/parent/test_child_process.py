from __future__ import annotations

import os
import signal
import sys

import pytest

from kinetic_payload.processes import marked
from kinetic_runner.parent.child_process import MARK, spawn


def test_a_grandchild_that_floods_the_output_is_cut_off(runner):
    done = runner.run(
        """
        print("mine")
        flood = "import os; os.write(1, b'x'); os.write(2, b'.')\\nwhile True: os.write(1, b'x' * 512)"
        subprocess.Popen([sys.executable, "-c", flood], stderr=subprocess.PIPE).stderr.read(1)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )

    assert done.code == 137
    assert done.log.startswith(b"mine\n")


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_grandchildren_are_killed_also_in_a_session_of_their_own(runner, is_alive, end):
    done = runner.run(
        f"""
        sleeper = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
        daemon = subprocess.Popen(
            [sys.executable, "-c", sleeper + "; import time; time.sleep(600)"],
            start_new_session=True, stdout=subprocess.PIPE, text=True,
        )
        holder = subprocess.Popen(["sleep", "600"])  # of the output
        print(holder.pid, daemon.pid, daemon.stdout.readline().strip(), flush=True)
        {end}
        """
    )

    pids = [int(pid) for pid in done.log.split()]
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


def test_without_adoption_orphans_are_found_by_their_mark(tmp_path, is_alive, wait_until):
    note = tmp_path / "pid"
    script = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        f"open({str(note)!r}, 'w').write(f'{{p.pid}}.')"
    )
    child = spawn([sys.executable, "-c", script], {})
    wait_until(lambda: note.exists() and note.read_text().endswith("."))
    daemon = int(note.read_text()[:-1])
    assert is_alive(daemon)

    # This process has other children, so the general `reap` is not for it.
    _, child.status = os.waitpid(child.pid, 0)
    child.reap = lambda: True  # type: ignore[method-assign]
    child.supervised = True
    assert child.kill_descendants()
    assert is_alive(daemon)  # A supervisor finds it, and no report waits for that.
    found = marked(f"{MARK}={child.mark}")
    for pid in found:
        os.kill(pid, signal.SIGKILL)

    assert found == [daemon]
    for fd in (child.output, child.report, child.task):
        os.close(fd)


def test_the_child_has_no_input_no_other_descriptors_and_ignores_no_signal(runner):
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    read_end, write_end = os.pipe()
    done = runner.run(
        """
        print(repr(sys.stdin.read()))
        theirs = [task.stop_fd, *(int(argument) for argument in sys.argv[-2:])]
        kept = [fd for fd in range(3, 64) if os.path.exists(f"/dev/fd/{fd}") and fd not in theirs]
        print(kept, any(map(os.get_inheritable, theirs)), os.getsid(0) == os.getpid())
        print(signal.getsignal(signal.SIGINT).__name__)
        """,
        *("--lifeline", str(read_end)),
        pass_fds=[read_end],
        preexec_fn=ignore,
    )
    os.close(read_end)
    os.close(write_end)

    assert done.log == b"''\n[] False True\ndefault_int_handler\n"


SHARED_MEMORY = """
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=100)
print(memory.name, flush=True)
"""


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="shared memory is nowhere to be seen")
@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell({'phase': 'call'}); time.sleep(600)",
        "subprocess.Popen(['sleep', '600'], pass_fds=[resource_tracker.getfd()])",
        "os.fork() and os._exit(3); time.sleep(600)",  # The tracker is that of a grandchild now.
        "os.setpgid(0, 0); os.fork() or time.sleep(600)",
    ],
)
def test_shared_memory_is_removed_however_the_function_ends(runner, end):
    done = runner.run(f"{SHARED_MEMORY}{end}", "--grace", "0", timeout=0.2, phase="data")

    name = done.log.split()[0].decode()
    assert not os.path.exists(f"/dev/shm/{name}")


def test_folders_of_joblib_are_removed_if_the_function_exits(runner, tmp_path):
    pytest.importorskip("joblib")
    folder = tmp_path / "joblib"
    folder.mkdir()
    body = f"""
        # As `Parallel` does with the folder for arrays that its workers share.
        from joblib.externals.loky.backend import resource_tracker
        resource_tracker.register({str(folder)!r}, "folder")
        os._exit(3)
    """

    assert runner.run(body).code == 1
    assert not folder.exists()
