import json
import os
import sys

import steps

import kinetic


@kinetic.run(accelerator="cpu")
def outside():
    import helper


@kinetic.run(accelerator="cpu")
def ignored():
    import pack.secret


@kinetic.run(accelerator="cpu")
def late():
    import elsewhere


@kinetic.run(accelerator="cpu")
def nowhere():
    import no_such_module_of_anyone


@kinetic.run(accelerator="cpu")
def wrapped():
    try:
        import helper
    except ImportError as error:
        raise RuntimeError("no helper") from error


def ended(job):
    try:
        return job.result()
    except Exception as error:
        return type(error).__name__, [n for n in error.__notes__ if n.startswith("The module")]


if __name__ == "__main__":
    functions = [
        outside,
        ignored,
        late,
        nowhere,
        wrapped,
        kinetic.run(accelerator="cpu")(steps.work),
    ]
    jobs = {job.func_name: job for job in [function.run_async() for function in functions]}
    sys.path.append(os.path.join(os.path.dirname(__file__), "deep"))
    print(json.dumps({name: ended(job) for name, job in jobs.items()}))
