import functools
from typing import Generic, TypeVar

import kinetic

T = TypeVar("T")
remote = kinetic.run(accelerator="cpu")


class Trainer(Generic[T]):
    def __init__(self, rate=1):
        self.rate = rate

    @classmethod
    @remote
    def made(cls):
        return cls(3)

    @staticmethod
    @remote
    def alone(x):
        return x

    @property
    @remote
    def prop(self):
        return self.rate

    @functools.cached_property
    def cached(self):
        return self.rate + 1

    @remote
    def method(self):
        return self.rate

    @functools.lru_cache
    @remote
    def twice(self):
        return 2 * self.rate


class Wrong(ValueError):
    @classmethod
    @remote
    def made(cls):
        raise cls("on purpose")


@remote
def function():
    return 1


@remote
def everything():
    trainer = Trainer(2)
    return {
        "class": Trainer,
        "generic": Trainer[int],
        "instance": trainer,
        "made": Trainer.made,
        "alone": Trainer.alone,
        "bound": trainer.method,
        "unbound": Trainer.method,
        "twice": Trainer.twice,
        "function": function,
        "error": Wrong,
    }


if __name__ == "__main__":
    found = everything()
    trainer = found["instance"]
    assert type(trainer) is found["class"] is Trainer
    assert (trainer.rate, trainer.cached) == (2, 3)
    assert found["generic"] == Trainer[int]
    assert found["error"] is Wrong
    assert found["unbound"] is Trainer.method
    assert found["function"] is function
    assert found["alone"].__wrapped__ is Trainer.alone.__wrapped__
    assert found["bound"].__wrapped__ is Trainer.method.__wrapped__
    assert Trainer.made().rate == 3
    try:
        Wrong.made()
    except Wrong as error:
        print(error)
