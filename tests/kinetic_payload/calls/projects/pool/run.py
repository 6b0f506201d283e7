import concurrent.futures
import dataclasses
import enum
import multiprocessing
import sys
import typing

import msgspec
from shipping import ship

if __package__:
    from . import helpers
else:
    import helpers


class Kind(enum.Enum):
    A = 1


class Planet(enum.Enum):
    EARTH = 5.9, 6.3

    def __init__(self, mass, radius):
        self.mass = mass


class Coord(bytes, enum.Enum):
    def __new__(cls, value):
        made = bytes.__new__(cls, [value])
        made._value_, made.label = value, f"label {value}"
        return made

    X = 7


class Plugin:
    known = []

    def __init_subclass__(cls, *, key):
        cls.key = key
        Plugin.known.append(key)


class Mine(Plugin, key="mine"):
    pass


class Meta(type):
    def __new__(meta, name, bases, body):
        read = sorted(key for key in body if key[0] != "_")
        return super().__new__(meta, name, bases, {**body, "read": read})


class Read(metaclass=Meta):
    a = 1


class Point(typing.NamedTuple):
    x: int


class Struct(msgspec.Struct):
    x: int = 3


@dataclasses.dataclass
class Item:
    x: int
    kind: Kind = Kind.A


FACTOR = 3
THINGS = [Planet.EARTH, Coord.X, Mine(), Read(), Point(2), Struct(4)]


def work(item):
    assert isinstance(item, Item) and item.kind is Kind.A
    return Item(item.x * FACTOR + helpers.ONE)


def describe(things):
    planet, coord, mine, read, point, struct = things
    assert (
        planet is Planet.EARTH and coord is Coord.X and [*map(type, things)] == [*map(type, THINGS)]
    )
    return things, [planet.mass, coord.label, mine.key, read.read, point.x, struct.x, Plugin.known]


def main(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        values = pool.map(work, [Item(1), Item(2)])
        [(things, facts)] = pool.map(describe, [THINGS])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        values += [*pool.map(work, [Item(3)]), pool.submit(helpers.doubled, 4).result()]
    process = context.Process(target=work, args=(Item(5),))
    process.start()
    process.join()
    assert all(type(value) is Item for value in values[:3])
    assert [*map(type, things)] == [*map(type, THINGS)] and things[0] is Planet.EARTH
    return values, process.exitcode, things, facts


if __name__ == "__main__":
    values, code, things, facts = ship(main, sys.argv[1])
    print([getattr(value, "x", value) for value in values], code, type(values[0]) is Item)
    print(facts, [*map(type, things)] == [*map(type, THINGS)], things[0] is Planet.EARTH)
