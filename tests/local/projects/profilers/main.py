import dataclasses
import multiprocessing
import os
import sys

import helper

import kinetic


@dataclasses.dataclass
class Item:
    x: int


COUNT = 3


def plus(item):
    return Item(item.x + COUNT)


@kinetic.run(accelerator="cpu")
def job(item):
    import __main__

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pooled = pool.map(plus, [item])
    file = os.path.basename(__file__), os.path.basename(__main__.__file__)
    assert helper.job() == (file[1], "helper.py")
    own = __main__.Item is Item, __main__.COUNT, __main__.__spec__, __main__.__package__
    return __name__, file, own, pooled, sys.path[0].rsplit("/")[-1], item


if __name__ == "__main__":
    *values, item = job(Item(1))
    print("SCRIPT", *values, type(item) is Item)
