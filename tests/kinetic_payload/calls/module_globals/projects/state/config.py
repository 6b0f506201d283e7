import collections
import threading

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
        self.weights, self.peers = [0], [self]


OPTIONS, BEST = Options(), Model()


def set_rate(rate):
    global RATE
    RATE = rate


def model():
    global MODEL
    if MODEL is None:
        MODEL = Model()
    return MODEL
