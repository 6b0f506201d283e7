import os
import pathlib
import subprocess
import sys
import time

import kinetic
from kinetic.testing import eventually

FULL = os.environ["FULL"]


@kinetic.run(accelerator="cpu")
def work(how, full):
    import os
    import random
    import signal

    print("up", flush=True)
    if how == "value":
        return random.Random(7).randbytes(4_000_000)
    try:
        with open(full + "/filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
    except OSError as error:
        failure = error
    for n in range(5000):
        print("line", n)
    if how == "raise":
        raise failure
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return random.Random(7).randbytes(200_000)


def message_of(job):
    outcome = job.outcome()
    return outcome.message if outcome.status.value == "RUNNING" else ""


def make_room():
    mount = ["mount", "-o", "remount,size=60m", FULL]
    subprocess.run(mount, check=True)


if __name__ == "__main__":
    how = sys.argv[1]
    job = work.run_async(how, FULL)
    # A disk with less than 1 MiB counts as full: room that is made while the function still writes is used up.
    eventually(lambda: how == "value" or not os.statvfs(FULL).f_bavail)
    first = "no space is left" if how == "value" else "is full: 0 MiB"
    words = eventually(lambda: first in message_of(job) and message_of(job))
    print("status:", words)
    try:
        job.result(timeout=0)
    except TimeoutError as error:
        print("result:", error)
    make_room()
    try:
        import random

        value = job.result()
        print("whole", value == random.Random(7).randbytes(len(value)), len(value))
    except (OSError, kinetic.KineticError) as error:
        print(type(error).__name__, error)
