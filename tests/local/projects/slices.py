import atexit
import json
import os
import pathlib
import signal
import sys
import time

import kinetic

on_four_hosts = kinetic.run(accelerator="tpu-v5litepod-16", backend="local-gke")
on_two_hosts = kinetic.run(accelerator="v4-8", backend="local-gke")


def host():
    return int(os.environ["KINETIC_HOST_INDEX"])


def meet(*hosts, where="at work"):
    # Waits until all of them are here, too.
    folder = os.environ["KINETIC_OUTPUT_DIR"]
    open(os.path.join(folder, f"{host()} {where}"), "w").close()
    while not {f"{number} {where}" for number in hosts} <= set(os.listdir(folder)):
        time.sleep(0.01)


def fail_with(*hosts):
    # None of them is gone, which is a reason to stop the others, before all have reported why they fail.
    meet(0, 1, 2, 3)
    atexit.register(meet, *hosts, where="at the end")


def end(job):
    try:
        found = repr(job.result(timeout=100, cleanup=False))
        notes = []
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        notes = [note for note in getattr(error, "__notes__", ()) if "traceback" not in note]
    return [found, notes, {one.host: one.reason for one in job.outcome().hosts}]


def await_leader(name):
    # It has written this object.
    job = os.path.join(os.environ["KINETIC_HOME"], "store", os.environ["KINETIC_JOB_ID"])
    while not os.path.exists(os.path.join(job, "attempts", "1", name)):
        time.sleep(0.01)


def joined():
    import jax
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices("joined")
    return multihost_utils


def tidy_up():
    # The leader has nothing left to do when the other one is in the middle of it.
    if host() == 0:
        atexit.register(mark, "ended")
    else:
        await_marks(folder(), "0 ended")
        time.sleep(1)
    mark("tidied up")


def folder():
    return pathlib.Path(os.environ["KINETIC_OUTPUT_DIR"])


def mark(what):
    (folder() / f"{host()} {what}").touch()


def await_marks(folder, *names):
    while not all((folder / name).exists() for name in names):
        time.sleep(0.01)


def outputs(job):
    return pathlib.Path(os.environ["KINETIC_HOME"]) / "store" / "outputs" / job.job_id


def ended(job):
    found = end(job)
    messages = [one.message for one in job.outcome().hosts]
    return [*found, messages, sorted(path.name for path in outputs(job).iterdir())]


@on_four_hosts
def two():
    if host() in (1, 3):
        fail_with(1, 3)
        raise [KeyError, ValueError][host() == 1](f"host {host()}")
    meet(0, 1, 2, 3)
    time.sleep(600)


def failing():
    return end(two.run_async())


@on_two_hosts
def late():
    if host() == 1:
        await_leader("host-0.json")
        raise ValueError("late")


@kinetic.run(accelerator="v4-8", backend="local-gke", retries=1)
def again():
    if host() == 1 and os.environ["KINETIC_ATTEMPT"] == "1":
        raise ValueError("once")
    return os.environ["KINETIC_ATTEMPT"]


def failing_later():
    return [end(late.run_async()), end(again.run_async())]


def work(how):
    try:
        if how == "early" and host() == 1:
            await_leader("host-0.joining")  # It waits for us, in `import jax`.
            raise ValueError("the culprit")
        hosts = joined()
        mark("at work")
        if how == "raise" and host() == 0:
            raise ValueError("the culprit")
        if how == "return":
            if host() == 0:
                return
            await_marks(folder(), "0 ended")
            raise ValueError("the culprit")
        while how == "compute":
            hosts.sync_global_devices("again")
        time.sleep(600)
    finally:
        if how == "raise":
            tidy_up()
        else:
            mark("tidied up")
            atexit.register(mark, "ended")


def stopped():
    running = on_two_hosts(work).run_async("compute")
    await_marks(outputs(running), "0 at work", "1 at work")
    running.cancel()
    others = (on_two_hosts(work).run_async(how) for how in ("raise", "return", "early"))
    return [ended(running), *map(ended, others)]


@kinetic.run(accelerator="v4-8", backend="local-gke", retries=1)
def saving():
    hosts = joined()
    mark("at work")
    step = 0
    while not hosts.reached_preemption_sync_point(step):
        step += 1
        hosts.sync_global_devices(f"step {step}")
    (folder() / f"{host()} saved").write_text(f"{os.environ['KINETIC_ATTEMPT']} {step}")


def preempted():
    job = saving.run_async()
    await_marks(outputs(job), "0 at work", "1 at work")
    state = pathlib.Path(os.environ["KINETIC_HOME"]) / "jobs" / job.job_id / "state.json"
    os.kill(json.loads(state.read_text())["attempts"][0]["pids"][1], signal.SIGTERM)
    found = ended(job)
    return [found, [(outputs(job) / f"{n} saved").read_text() for n in (0, 1)]]


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
