import os
import sys

from gates import gate
from pods import small

import kinetic


def numbered(stage):
    for number in range(20):
        print(stage, number, flush=True)


@kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
def function(mark):
    numbered("begin")
    for stage in ("kubelet", "server"):
        gate(f"{stage}-{mark}")
        numbered(stage)
    return "kept"


if __name__ == "__main__":
    print(function.run_async(sys.argv[1]).job_id)
