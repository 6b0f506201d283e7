import json
import os

import training
from checkpointing import Checkpoints, outputs
from gates import gate
from pods import small

import kinetic


class Interrupted:
    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)

    def write(self, name, data):
        "Stop in the first attempt, after the arrays of a checkpoint, before it is marked as complete."
        if name.endswith("000012/complete") and os.environ["KINETIC_ATTEMPT"] == "1":
            gate("torn")
        return self.store.write(name, data)


@kinetic.run(
    os.environ["SLICE"],
    container_image=os.environ["IMAGE"],
    memory="700Mi",
    capture_env_vars=["JAX_*"],
    preemptions=1,
    pod_overrides=small(),
)
def function():
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    interrupted = Checkpoints(Interrupted(outputs()), "broken")
    broken = training.train(epochs=16, save_every=4, checkpoints=interrupted)
    whole = training.train("whole", epochs=16)
    return vars(broken), vars(whole), process_allgather(np.float32(whole.loss)).tolist()


if __name__ == "__main__":
    job = function.run_async()
    print(job.job_id, flush=True)
    values = job.result(cleanup=False)
    attempts = [
        [(host.reason, host.devices_seen, host.peak_memory) for host in hosts]
        for hosts in job.outcome().attempts.values()
    ]
    job.cleanup()
    print(json.dumps([*values, attempts]))
