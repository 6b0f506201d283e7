"""Submit one call, wait for its value, clean up; report each step as a line of JSON."""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import kinetic


def work(plan, data=None):
    host, attempt = os.environ["KINETIC_HOST_INDEX"], os.environ["KINETIC_ATTEMPT"]
    Path(plan["marks"], f"began-{attempt}-{host}").touch()
    if data is not None:
        assert Path(data, "one.txt").read_text() == "1"
    print("in the function", flush=True)
    time.sleep(plan["seconds"])
    if plan["stopping"] and attempt == "1":
        # Until it is continued, the runner notices neither our end nor that of another process.
        os.kill(os.getppid(), signal.SIGSTOP)
    value = {
        "number": plan["number"],
        "bytes": random.Random(plan["number"]).randbytes(plan["size"]),
    }
    Path(plan["marks"], f"ended-{attempt}-{host}").touch()
    return value


def report(**what):
    print(json.dumps(what), flush=True)


def is_right(value, plan):
    return value == {
        "number": plan["number"],
        "bytes": random.Random(plan["number"]).randbytes(plan["size"]),
    }


def main(plan):
    warnings.simplefilter("ignore")
    backend, accelerator = (
        ("local", "cpu") if plan["hosts"] == 1 else ("local-gke", "tpu-v5litepod-16")
    )
    run = kinetic.run(accelerator=accelerator, backend=backend, retries=plan["retries"])(work)
    job = None
    try:
        job = run.run_async(plan, *(map(kinetic.Data, plan.get("data", ()))))
        report(job=job.job_id)
        if plan["waiting"]:
            if plan["window"]:
                job = kinetic.attach(job.job_id)  # Which reads the record.
            report(right=is_right(job.result(cleanup=False), plan))
            job.cleanup()
            report(cleaned=True)
    except Exception as error:
        report(
            error=type(error).__name__,
            message=getattr(error, "message", str(error)),
            hint=getattr(error, "hint", None),
            known=isinstance(error, kinetic.KineticError),
        )
        if job is not None:
            time.sleep(plan["window"])
            try:
                report(later=is_right(kinetic.attach(job.job_id).result(cleanup=False), plan))
            except Exception as error:
                report(later_error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
