import json
import os
import sys
from urllib.request import Request

from gates import HOST, ask, gate
from pods import small

import kinetic

on_cluster = kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="128Mi", preemptions=1, pod_overrides=small()
)


def run(phase):
    attempt = os.environ["KINETIC_ATTEMPT"]
    ask(
        Request(
            f"{HOST}/upload/storage/v1/b/gates/o?uploadType=media&name=ran-{phase}-{attempt}", b""
        )
    )
    return int(attempt)


@on_cluster
def before_claim(mark):
    return run("before-claim" + mark)


@on_cluster
def while_downloading(mark):
    return run("while-downloading" + mark)


@on_cluster
def in_function(mark):
    attempt = run("in-function" + mark)
    if attempt == 1:
        gate("in-function" + mark)
    return attempt


@on_cluster
def while_uploading(mark):
    return run("while-uploading" + mark), b"x" * 300_000


@on_cluster
def after_outcome(mark):
    return run("after-outcome" + mark)


if __name__ == "__main__":
    for function in (before_claim, while_downloading, in_function, while_uploading, after_outcome):
        print(function.run_async(sys.argv[1]).job_id)
