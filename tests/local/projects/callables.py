import functools

import kinetic

remote = kinetic.run(accelerator="cpu")


class Counter:
    def __init__(self, start):
        self.start = start

    def add(self, x):
        return self.start + x

    def __call__(self, x):
        return self.start * x

    @remote
    def method(self, x):
        return self.start - x


def multiply(x, y):
    return x * y


def outer(factor):
    def inner(x):
        return factor * x

    return inner


print(remote(functools.partial(multiply, 3))(4))
print(remote(Counter(10).add)(1))
print(remote(Counter(10))(2))
print(Counter(10).method(3))
print(Counter.method(Counter(20), 3))
print(remote(lambda x: x + 1)(1))
print(remote(outer(5))(2))
print(remote(functools.partial(outer(5)))(3))
job = Counter(1).method.run_async(2)
print(job.result(), job.func_name)
