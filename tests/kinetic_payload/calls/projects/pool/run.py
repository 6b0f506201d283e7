import concurrent.futures
import dataclasses
import enum
import multiprocessing
import sys

import helpers
from shipping import ship


class Kind(enum.Enum):
    A = 1


class Planet(enum.Enum):
    EARTH = 5.9, 6.3

    def __init__(self, mass, radius):
        self.mass = mass


@dataclasses.dataclass
class Item:
    x: int
    kind: Kind = Kind.A


class Unnamed:
    size = 2


def unnamed(x):
    return x + 1


FACTOR, THINGS = 3, [Unnamed(), unnamed]  # No function names them.


def work(item):
    assert isinstance(item, Item) and item.kind is Kind.A
    return Item(item.x * FACTOR + helpers.ONE)


def describe(planet, item, thing, function):
    assert planet is Planet.EARTH and type(item) is Item
    return planet, item, function(planet.mass) * thing.size


def main(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        values = pool.map(work, [Item(1), Item(2)])
        planet, item, mass = pool.apply(describe, (Planet.EARTH, Item(2), *THINGS))
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        values += [*pool.map(work, [Item(3)]), pool.submit(helpers.doubled, 4).result()]
    process = context.Process(target=work, args=(Item(5),))
    process.start()
    process.join()
    assert all(type(value) is Item for value in values[:3])
    assert type(item) is Item and planet is Planet.EARTH
    return values, process.exitcode, planet, mass


if __name__ == "__main__":
    values, code, planet, mass = ship(main, sys.argv[1])
    print([getattr(value, "x", value) for value in values], code, type(values[0]) is Item)
    print(mass, planet is Planet.EARTH)
