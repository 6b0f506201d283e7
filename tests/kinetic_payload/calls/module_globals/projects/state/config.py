import collections
import threading
from pathlib import Path

CFG = {"lr": 0.1, "names": ["a"]}
TABLE = collections.OrderedDict(a=1)
LOCK = threading.Lock()
STEPS: list[int] = []
NET, RATE, MODEL = None, 1, None
NAMES, REGISTRY = {"a", "b", "c"}, {"f": lambda x: x}


class Options:
    depth, names = 1, ["a"]


class Model:
    def __init__(self) -> None:
        self.weights, self.peers, self.file = [0], [self], __file__
        self.last = [1]


class Strict(dict):
    def __getattr__(self, name):
        return self[name]


class Own(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


class Places:
    made = None

    @classmethod
    def get(cls):
        cls.made = cls.made or str(Path(__file__))
        return cls.made


OPTIONS, BEST, FILE = Options(), Model(), Path(__file__)
STRICT, OWN = Strict(rate=1), Own(rate=1)


def set_rate(rate):
    global RATE
    RATE = rate


def model():
    global MODEL
    if MODEL is None:
        MODEL = Model()
    return MODEL
