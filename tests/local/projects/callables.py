import functools
import json

import lib

import kinetic

remote = kinetic.run(accelerator="cpu")


class Counter:
    def __init__(self, start):
        self.start = start

    def add(self, x):
        return self.start + x

    @remote
    def method(self, x):
        return self.start - x


def outer(factor):
    def inner(x):
        return factor * x

    return inner


if __name__ == "__main__":
    model = lib.Model()
    model.rate = 3
    jobs = [
        remote(functools.partial(outer(5))).run_async(2),
        remote(Counter(10).add).run_async(1),
        Counter(1).method.run_async(2),
        model.fit.run_async(2),
        lib.called.run_async(3),
        lib.short.run_async(4),
    ]
    print(json.dumps([[job.result() for job in jobs], jobs[2].func_name]))
