import config
from config import CFG, NAMES, settings
from model import build
from shipping import ship


def train(lr):
    CFG["lr"], settings.rate = lr, 2
    NAMES.append("c")
    return build(), config.CFG is CFG


def through_module(lr):
    config.CFG["lr"] = lr
    return build()


def through_argument(cfg, lr):
    cfg["lr"] = lr
    return build()


def outer(cfg):
    def inner(lr, settings=settings):
        cfg["lr"], settings.rate = lr, 3
        return build()

    return inner


CFG["lr"] = 0.2
NAMES.append("b")
print(
    ship(train, 0.5),
    ship(through_module, 0.6),
    ship(through_argument, CFG, 0.7),
    ship(outer(CFG), 0.8),
)
print(ship(build))
