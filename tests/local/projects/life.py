import json
import os
import sys
from pathlib import Path

from helper import locked

import kinetic


class Sad(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.b = b


@kinetic.run(accelerator="cpu")
def sad():
    raise Sad(1, 2)


@kinetic.run(accelerator="cpu", retries=1)
def again(data):
    assert not Path("trace").exists()
    assert Path(data, "one.txt").read_text() == "one"
    Path("trace").touch()
    Path(data, "one.txt").write_text("changed")
    if os.environ["KINETIC_ATTEMPT"] == "1":
        raise ValueError
    return os.environ["KINETIC_ATTEMPT"]


@kinetic.run(accelerator="tpu-v5litepod-4", capture_env_vars=["MINE_*", "ONE"])
def variables():
    names = ("MINE_A", "ONE", "OTHER", "JAX_PLATFORMS", "KINETIC_HOST_INDEX")
    return {name: os.environ.get(name) for name in names}


if __name__ == "__main__":
    jobs = [again.run_async(kinetic.Data("set")), variables.run_async()]
    print("value", locked(21))
    try:
        sad()
    except Sad as error:
        caught = [str(error), error.b, "\n".join(error.__notes__)]
    print(json.dumps([caught, *(job.result(cleanup=False) for job in jobs)]))
