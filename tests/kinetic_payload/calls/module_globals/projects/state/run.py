"""Ship functions that read the state of modules in several ways; each must return what it returns here."""

import sys
from pathlib import Path

import config
import pack.tm as tm
from config import BEST, CFG, LOCK, TABLE
from pack.tm import train
from shipping import dump, ship


def check(function, *args):
    there, here = ship(function, *args), function(*args)
    assert repr(there) == repr(here), (function, there, here)


size = dump(tm.make()).size
config.model()
for function in (tm.make(), tm.same, tm.best, lambda: (train(), tm.same(), TABLE)):
    check(function)
assert dump(tm.make()).size < size + 1500  # What the program did not change does not travel.

tm.batch, tm.opt, config.NET = 64, 5, config.Options
config.Options.depth, config.OPTIONS.depth = 7, 8
config.set_rate(9)
config.Options.names.append("b")
CFG["lr"] = 0.5
CFG["names"].append("b")
TABLE.update(b=2)
BEST.weights.append(3)
config.STEPS.extend([1, 2])
config.NAMES.add("d")
tm.step, tm.Kind = repr, config.Model


class Holder:
    cfg = CFG

    def read(self, cfg=CFG):
        with LOCK:
            self.cfg["lr"] += 1
        return tm.train(), cfg is CFG is config.CFG is self.cfg, tm.same(), tm.best()


def read():
    return tm.batch, train(), tm.train(), config.OPTIONS.depth


def changed(cfg, best):
    cfg["lr"] = 2
    best.weights[0] = 4
    return CFG, tm.train(), tm.best(), best is config.BEST


lr = CFG["lr"]
for function in (tm.train, tm.make(), tm.same, tm.best, read, lambda: (train(), tm.same())):
    check(function)
check(Holder().read)
CFG["lr"] = lr
there = ship(changed, config.CFG, config.BEST)
assert repr(there) == repr(changed(config.CFG, config.BEST)), there
config.NET, config.OWN.rate, BEST.last = config.Model(), 2, BEST.weights
config.NET.peer, config.Places.peer = config.Places, config.NET
config.Places.get()
if len(sys.argv) > 9:  # What the text of the script may set, and has the job's own path.
    config.FILE = sys.argv[9]


def shapes():
    BEST.weights.append(5)
    cycle = config.Places.peer is config.NET and config.NET.peers[0] is config.NET
    places = Path(config.Places.get()), config.FILE, Path(BEST.file)
    return config.STRICT.rate, config.OWN.rate, BEST.last, cycle, [one.exists() for one in places]


check(shapes)
assert ship(tm.kept) is True  # A value that a module keeps when it has made it is made anew.
print("right")
