import os
import sys

from gates import gate
from pods import ON_CORDONED, small

import kinetic

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


def on_cluster(*tolerations):
    return kinetic.run(
        "cpu",
        container_image=os.environ["IMAGE"],
        memory="128Mi",
        pod_overrides=small(tolerations=tolerations),
    )


def run(mark):
    attempt = int(os.environ["KINETIC_ATTEMPT"])
    print("attempt", attempt, flush=True)
    if attempt == 1:
        gate(mark)
    return attempt


@on_cluster()
def drained(mark):
    return run(mark)


@on_cluster(ON_CORDONED, {**UNREACHABLE, "tolerationSeconds": 0})
def lost(mark):
    return run(mark)


@on_cluster(ON_CORDONED)
def deleted(mark):
    return run(mark)


if __name__ == "__main__":
    for function in (drained, lost, deleted):
        print(function.run_async(f"{function.__name__}-{sys.argv[1]}").job_id)
