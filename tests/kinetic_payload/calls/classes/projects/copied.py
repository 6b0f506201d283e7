import copy
import copyreg
import enum
import pickle
import threading


class Locked:
    def __init__(self, n):
        self.n, self.lock = n, threading.Lock()


def reduced(locked):
    return Locked, (locked.n,)


copyreg.pickle(Locked, reduced)


class Outer:
    class Mode(enum.Enum):
        FAST = 1

    class Inner:
        x = 3


INNER, MODE = Outer.Inner(), Outer.Mode.FAST


class Model:
    @classmethod
    def names(cls):
        return [one.__name__ for one in cls.__subclasses__()]


class Small(Model):
    pass


class Large(Model):
    pass


class Largest(Large):
    pass


def facts():
    return {
        "subclasses": (Model.names(), [one.names() for one in Model.__subclasses__()]),
        "copied": copy.copy(Locked(4)).n,
        "nested": (pickle.loads(pickle.dumps(INNER)).x, pickle.loads(pickle.dumps(MODE)) is MODE),
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
