import abc
import dataclasses
import enum
import sys
import typing

import msgspec
import shapes
from shipping import ship


class Base:
    seen = []

    def __init_subclass__(cls, **kw):
        Base.seen.append(cls.__name__)


def main():
    class Below(Base):
        def double(self):
            return 2 * self.x

        def again(self):
            return Below

    class Item(msgspec.Struct, frozen=True):
        x: int = 3

        def next(self):
            return Item(self.x + 1)

    class Planet(enum.Enum):
        EARTH = 1, 2

        def __init__(self, a, b):
            self.sum = a + b

    @dataclasses.dataclass(slots=True)
    class Data:
        x: int

    class Shape(shapes.Registered):
        key = "home"

    made = Below()
    made.x = 4
    return made, Item(), Planet.EARTH, Data(1), Shape()


below, item, earth, data, shape = ship(main)
print(below.double(), type(below).again(below) is type(below), isinstance(below, Base), Base.seen)
print(item.next(), item.__struct_config__.frozen, earth.sum, type(earth)((1, 2)) is earth)
print(data, hasattr(data, "__dict__"), dataclasses.fields(data)[0].default is dataclasses.MISSING)
print(shapes.REGISTRY["home"] is type(shape), shapes.BODIES)
