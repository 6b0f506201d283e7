import sys

import config
from config import own, strict, tied
from shipping import ship

if len(sys.argv) > 9:
    config.FILE = sys.argv[9]
config.model, own.rate, tied.last = config.Model(), 2, tied.first
config.model.peer, config.Places.peer = config.Places, config.model
config.Places.get()


def facts():
    tied.first.append(2)
    model = config.model
    return strict.rate, config.read(), tied.last, model.own is model, config.Places.peer is model


print(ship(facts))
