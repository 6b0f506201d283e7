"""Jobs that another process ends in the moment in which they are started."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("act", "expected"),
    [("cancel", "JobCancelledError False\nTrue 1\n"), ("clean up", "SubmitError True\nFalse 0\n")],
)
def test_a_job_that_is_ended_while_it_starts_does_not_run(project, act: str, expected: str) -> None:
    project.copy("disturbed.py")

    assert project.output("disturbed.py", act) == expected
    assert not (project.root / "ran").exists()


def test_a_function_in_a_forked_process_sees_what_it_sees_in_a_started_one(project) -> None:
    # Where the interpreter runs code of the user's at its start, the process is not forked.
    project.write("site/sitecustomize.py", "import random\nrandom.seed(42)\n")
    project.write("fresh.py", """
        import kinetic, os, random

        @kinetic.run(accelerator="cpu", capture_env_vars=["PYTHONPATH"])
        def fresh():
            import inspect, os, psutil, signal, sys, threading
            parent = psutil.Process(os.getppid())
            return {
                "forked": parent.cmdline() == psutil.Process().cmdline(),
                "arguments": [each for each in sys.orig_argv[1:] if not each.isdigit()],
                "descriptors": sorted(os.readlink(f"/dev/fd/{fd}").split(":")[0] for fd in (0, 1, 2)),
                "more": len(os.listdir("/dev/fd")),
                "session": os.getsid(0) == os.getpid() == os.getpgrp(),
                "thread": threading.main_thread().native_id == os.getpid(),
                "signals": [repr(signal.getsignal(each)).split(" object ")[0] for each in sorted(signal.valid_signals())],
                "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
                "wakeup": signal.set_wakeup_fd(-1),
                "stack": len(inspect.stack()),
                "output": [each.seekable() for each in (sys.stdout, sys.stdout.buffer)],
                "mark": "KINETIC_RUNNER_MARK" in os.environ,
                "flags": tuple(sys.flags),
                "random": random.random(),
            }

        if __name__ == "__main__":
            forked = fresh()
            os.environ["PYTHONPATH"] = os.path.abspath("site")
            started = fresh()
            assert forked.pop("forked") and not started.pop("forked"), (forked, started)
            assert started.pop("random") == random.Random(42).random() != forked.pop("random")
            print({name: (forked[name], started[name]) for name in forked if forked[name] != started[name]})
    """)  # fmt: skip

    assert project.output("fresh.py") == "{}\n"
