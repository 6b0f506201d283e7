import abc
import dataclasses
import typing

from shipping import ship


class Base(abc.ABC):
    __slots__ = ("__private",)

    def __init__(self):
        self.__private = 1


class Plain(Base):
    __slots__ = ()


class Open(Base):
    __slots__ = ("a", "__dict__", "__weakref__")


class One(Base):
    __slots__ = "a"


@dataclasses.dataclass(slots=True, weakref_slot=True)
class Item:
    x: int
    rest: list = dataclasses.field(default_factory=list)


class Point(typing.NamedTuple):
    x: int


def main(*given):
    kinds = [Plain, Open, One, Item, Point]
    assert [hasattr(kind(*args), "__dict__") for kind, args in zip(kinds, ARGS)] == [
        False,
        True,
        False,
        False,
        False,
    ]
    made = One()
    made.a = 5
    return *given, made, Item(3), Plain()


ARGS = (), (), (), (1,), (1,)
opened = Open()
opened.a, opened.b = 1, 2
*same, made, item, plain = ship(main, opened, Item(2), Point(1))
print((same[0].a, same[0].b), same[1:] == [Item(2), Point(1)], made.a, item, type(plain) is Plain)
