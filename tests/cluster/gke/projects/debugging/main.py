import os
import sys

from helper import double
from pods import small

import kinetic


@kinetic.run(
    os.environ.get("ACCELERATOR", "cpu"),
    backend="gke",
    container_image=os.environ["IMAGE"],
    memory="256Mi",
    pod_overrides=small(),
    debug=True,
)
def function(x):
    print("in the function", flush=True)
    y = double(x)
    return y


if __name__ == "__main__":
    if sys.argv[1] == "call":
        print("value", function(21))
    elif sys.argv[1] == "submit":
        print(function.run_async(21).job_id)
    else:
        from kinetic.debug import cleanup_port_forward

        job = kinetic.attach(sys.argv[2])
        forward = job.debug_attach(local_port=int(sys.argv[3]))
        print("value", job.result())
        assert forward.poll() is None
        cleanup_port_forward(forward)
        print("forward", forward.poll() is not None, "job", job.status().value)
        try:
            job.debug_attach(local_port=int(sys.argv[3]))
        except kinetic.JobError as error:
            print("too late:", error.message)
