"""Submit one call to a cluster, or collect one; print the log, and the rest as lines of JSON."""

import asyncio
import json
import os
import random
import signal
import sys
import time
import warnings
from urllib.request import Request, urlopen

from pods import small

import kinetic


def work(plan):
    host, attempt = os.environ["KINETIC_HOST_INDEX"], os.environ["KINETIC_ATTEMPT"]
    stopped = []

    def stop(*_):
        stopped.append(True)
        if plan["on_sigterm"] == "exits":
            sys.exit()

    if plan["on_sigterm"] == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif plan["on_sigterm"]:
        signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    mark("ran", attempt, host)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        for number in range(plan["lines"]):
            os.write(1, f"line {attempt} {host} {number}\n".encode())
            time.sleep(0.1)
            if stopped:
                return "half of the work"
    finally:
        os.write(1, f"left {attempt} {host}\n".encode())
    if plan["fails"] and host == "0" and not marks("failed"):
        mark("failed", attempt, host)
        raise ValueError("the one failure")
    mark("ended", attempt, host)
    return random.Random(plan["number"]).randbytes(plan["size"])


def mark(what, *rest):
    """Write a small object of this job, whatever the network does."""
    name = f"{os.environ['KINETIC_JOB_ID']}/{'-'.join((what, *rest))}"
    url = f"{os.environ['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/marks/o?uploadType=media"
    ask(Request(f"{url}&name={name}", data=b"", method="POST"))


def marks(what):
    url = f"{os.environ['STORAGE_EMULATOR_HOST']}/storage/v1/b/marks/o"
    return "items" in json.loads(ask(f"{url}?prefix={os.environ['KINETIC_JOB_ID']}/{what}"))


def ask(request):
    while True:
        try:
            return urlopen(request, timeout=10).read()
        except OSError:
            time.sleep(0.1)


def report(**what):
    print(json.dumps(what), flush=True)


def collected(job):
    """Return the value of a job, with its log on stdout; report how its attempts ended, and clean it up."""
    value = job.result(cleanup=False, stream_logs=True)
    outcome = job.outcome()
    attempts = [
        (host.attempt, host.host, host.reason, host.phase, host.hostname) for host in outcome.hosts
    ]
    report(reports=attempts, message=outcome.message, status=job.status().value)
    job.cleanup()
    return value


async def awaited(job):
    """Return the value of a job, which is cleaned up, while another thread follows its log."""
    log = asyncio.create_task(asyncio.to_thread(job.logs, True))
    value = await job
    await log
    return value


def main(plan):
    warnings.simplefilter("always")
    overrides = small()
    if plan["hosts"] == 1:
        overrides["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    run = kinetic.run(
        plan["accelerator"],
        container_image=os.environ["IMAGE"],
        memory="128Mi",
        retries=int(plan["fails"]),
        labels={"soak": str(plan["number"])},
        pod_overrides=overrides,
    )(work)
    try:
        if plan["way"] == "call":
            value = run(plan)
        elif plan["way"] == "submit":
            report(job=run.run_async(plan).job_id)
            return
        elif plan["way"] == "await":
            value = asyncio.run(awaited(run.run_async(plan)))
        else:
            value = collected(kinetic.attach(plan["job"]))
        report(right=value == random.Random(plan["number"]).randbytes(plan["size"]))
    except Exception as error:
        report(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
