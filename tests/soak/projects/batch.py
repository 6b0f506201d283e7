"""Submit a batch to a cluster, or collect one; print what is measured as lines of JSON."""

import json
import os
import random
import resource
import sys
import time
import warnings

from evicted import mark, report
from pods import small

import kinetic


def square(x, seed, seconds):
    attempt = os.environ["KINETIC_ATTEMPT"]
    mark("ran", attempt, "0")
    time.sleep(seconds * random.Random(f"{seed}-{x}").uniform(0.5, 1.5))
    mark("ended", attempt, "0")
    return x * x


def timed(what, call):
    began = time.monotonic()
    value = call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report(measured=what, seconds=time.monotonic() - began, peak=peak)
    return value


def submitted(plan):
    run = kinetic.run(
        "cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small()
    )(square)
    return run.run_async_map(
        range(plan["inputs"] or plan["members"]),
        common={"seed": plan["seed"], "seconds": 0 if plan["inputs"] else plan["seconds"]},
        max_concurrent=plan["at_once"],
        inputs_per_pod=plan["per_pod"],
    )


def main(plan):
    warnings.simplefilter("always")
    if "group" in plan:
        batch = kinetic.attach_batch(plan["group"])
    else:
        batch = timed("run_async_map()", lambda: submitted(plan))
        report(group=batch.group_id)
        if plan["kill_submitter"]:
            time.sleep(3600)
    if plan["inputs"]:
        timed("wait()", batch.wait)
    timed("statuses()", batch.statuses)
    report(values=timed("results(cleanup=False)", lambda: batch.results(cleanup=False)))
    report(again=timed("results()", batch.results))
    timed("clean-up", batch.statuses)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
