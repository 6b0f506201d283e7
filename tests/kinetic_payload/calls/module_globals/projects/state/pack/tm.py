import config
from config import BEST, CFG, LOCK, OPTIONS, STEPS, Options

batch = 12
opt = sum([1, 2])
best_of = {"now": BEST}


def train():
    with LOCK:
        return (
            batch,
            opt,
            CFG,
            STEPS,
            OPTIONS.depth,
            Options.depth,
            Options.names,
            config.RATE,
            config.NET,
        )


def same():
    return CFG is config.CFG, STEPS is config.STEPS, best_of["now"] is BEST, BEST.peers[0] is BEST


def best():
    return BEST.weights, best_of["now"].weights, config.TABLE


def kept():
    return config.MODEL is None or config.model().weights
