import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil

import kinetic


@kinetic.run(accelerator="cpu")
def work(gate):
    print("up", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.02)
    return 1


MODULES = (
    "kinetic.submit.submit",
    "kinetic.submit.rollback",
    "kinetic.submit.blocking_call",
    "kinetic.interrupts",
    "kinetic.backends.local.backend",
    "kinetic.backends.local.launch",
    "kinetic.home.liveness",
    "kinetic.jobs.handle",
)
OURS = [find_spec(name).origin for name in MODULES]

JOBS = Path(os.environ["KINETIC_HOME"], "jobs")


class Interrupting:
    """Sends SIGINT before line *at* of ours, counted from where the function *begin* is called."""

    def __init__(self, begin, at):
        self.begin, self.at, self.count, self.waits = begin, at, None, False
        self.before = self.children()

    def children(self):
        return {child.pid for child in psutil.Process().children()}

    def runs(self):
        logs = [folder / "attempt-1" / "host-0.log" for folder in JOBS.glob("cpu-*")]
        return all(log.exists() and log.read_text() for log in logs)

    def __call__(self, frame, event, arg):
        code = frame.f_code
        if code.co_filename not in (*OURS, subprocess.__file__):
            return None
        if event == "call" and code.co_name == self.begin:
            self.count = 0
        if code.co_name == "_collect" and self.count is not None:
            self.waits = True  # For the job that was started.
            self.fire()
        if event == "line" and self.count is not None:
            self.count += 1
            if self.count == self.at:
                self.fire()
        return self

    def fire(self):
        sys.settrace(None)
        self.count = None
        while self.children() - self.before and not self.runs():
            time.sleep(0.01)  # Had it come later, would the job be at work.
        signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    how, begin, gate = sys.argv[1:4]
    call = work.run_async if how == "run_async" else work
    for at in range(*map(int, sys.argv[4:])):
        interrupting = Interrupting(begin, at)
        sys.settrace(interrupting)
        try:
            job = call(gate)
        except KeyboardInterrupt as stop:
            print("\n".join(getattr(stop, "__notes__", ())), file=sys.stderr)
            if interrupting.waits:
                break
        else:
            print("it goes on: ", job.job_id, file=sys.stderr)
            break  # There are no more lines.
        finally:
            sys.settrace(None)
