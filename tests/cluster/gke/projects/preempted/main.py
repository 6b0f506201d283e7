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
        if name.endswith("000030/complete") and os.environ["KINETIC_ATTEMPT"] == "1":
            gate("torn")
        return self.store.write(name, data)


@kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="700Mi", preemptions=1, pod_overrides=small()
)
def function():
    broken = training.train(epochs=40, checkpoints=Checkpoints(Interrupted(outputs()), "broken"))
    return vars(broken), vars(training.train("whole", epochs=40))


if __name__ == "__main__":
    job = function.run_async()
    print(job.job_id, flush=True)
    values = job.result(cleanup=False)
    attempts = job.outcome().attempts.values()
    job.cleanup()
    print(json.dumps([*values, [host.reason for hosts in attempts for host in hosts]]))
