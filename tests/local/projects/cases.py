"""Functions that run as jobs, all at once; what comes of each is printed as JSON."""

import json

import kinetic

CASES = {}


def case(function):
    CASES[function.__name__] = kinetic.run(accelerator="cpu")(function)
    return CASES[function.__name__]


def collect(job):
    followed = [line.text for line in job.log_lines(follow=True)]
    try:
        found = {"value": job.result(timeout=100, cleanup=False)}
    except BaseException as error:
        try:
            text = str(error)
        except Exception:
            text = "?"
        found = {"raised": type(error).__name__, "text": text[:500], "notes": error.__notes__}
    log = job.logs()
    job.cleanup()
    assert job.logs() == log
    return {**found, "followed": followed, "log": log}


def main():
    jobs = {name: function.run_async() for name, function in CASES.items()}
    print(json.dumps({name: collect(job) for name, job in jobs.items()}, default=repr))
