import enum
import multiprocessing
import sys
import typing

import msgspec
from shipping import ship


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
    def __init__(self, x):
        self.x = x


class Meta(type):
    def __new__(meta, name, bases, body):
        return super().__new__(
            meta, name, bases, {**body, "read": sorted(k for k in body if k[0] != "_")}
        )


class Read(metaclass=Meta):
    a = 1


class Point(typing.NamedTuple):
    x: int


class Struct(msgspec.Struct):
    x: int = 3


def work(things):
    planet, coord, mine, read, point, struct = things
    assert (
        planet is Planet.EARTH
        and coord is Coord.X
        and type(mine) is Mine
        and type(struct) is Struct
    )
    return things, [
        planet.mass,
        coord.label,
        mine.key,
        mine.x,
        read.read,
        point.x,
        struct.x,
        Plugin.known,
    ]


def main(method):
    things = [Planet.EARTH, Coord.X, Mine(1), Read(), Point(2), Struct(4)]
    with multiprocessing.get_context(method).Pool(1) as pool:
        ((again, facts),) = pool.map(work, [things])
    return again, facts, [type(x) is type(y) for x, y in zip(again, things)], again[0] is things[0]


if __name__ == "__main__":
    again, facts, *same = ship(main, sys.argv[1])
    print(
        facts,
        *same,
        again[0] is Planet.EARTH,
        [
            type(thing) is kind
            for thing, kind in zip(again, (Planet, Coord, Mine, Read, Point, Struct))
        ].count(True),
    )
