import json
import os
import subprocess
import sys
import threading
import time

import kinetic

CASES = {}


def case(function):
    CASES[function.__name__] = kinetic.run(accelerator="cpu")(function)
    return CASES[function.__name__]


def main():
    jobs = {name: function.run_async() for name, function in CASES.items()}
    ends = {}
    for name, job in jobs.items():
        followed = [line.text for line in job.log_lines(follow=True)]
        try:
            value = job.result(timeout=100, cleanup=False)
        except Exception as error:
            value = repr(error)
        log = job.logs()
        job.cleanup()
        assert job.logs() == log
        ends[name] = {"value": value, "log": log, "followed": followed}
    print(json.dumps(ends))
