import threading

import lib
import pack.config
import pack.config as config
from pack.config import Settings
from shipping import dump, ship

config.RATE, config.Settings.lr, Settings.depth = 2, 3, 4
config.NAMES.append("b"), Settings.made.update(b=2)
config.Base.later, Settings.folder = 5, "mine"


def outer(module):
    return lambda: module.RATE


def count():
    config.RATE += 1
    return config.rate()


exec("def many():" + "".join(f"\n if 0: n{i}.a{i}" for i in range(300)) + "\n return config.RATE")


def read():
    with config.LOCK:
        return (
            config.RATE,
            pack.config.NAMES,
            config.rate(),
            Settings.lr,
            Settings().method(),
            Settings.made,
            Settings.depth,
            config.Base.later,
            Settings.folder,
        )


for function in read, lib.make(), outer(config), count, many:  # noqa: F821
    print(ship(function))
print(len(dump(lib.make()).data))
