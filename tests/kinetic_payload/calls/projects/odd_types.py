import abc
import contextlib
import dataclasses
import enum
import functools
import logging
import typing

from shipping import ship

log = logging.getLogger("mine")


class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
    @property
    def p(self):
        return super().__repr__()[:1]

    @staticmethod
    def s():
        return "s"

    @classmethod
    def c(cls):
        return cls.__name__


class Child(Base):
    def f(self):
        return super().p, self.s(), self.c(), __class__ is Child


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@contextlib.contextmanager
def context(x):
    yield x


@functools.singledispatch
def single(x):
    return "any"


@single.register
def _(x: int):
    return "int"


class Box(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, x):
        self.x = x


class Typed(typing.TypedDict):
    x: int


def main(child, flags):
    log.warning("from the job")
    with context(1) as x:
        pass
    return child.f(), flags, x, Box[int](3).x, Typed(x=1), single(1), single("")


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


if __name__ == "__main__":
    value = ship(main, Child(), Flags.A | Flags.B)
    print(value, value[1] is Flags.A | Flags.B)
    print(ship(even, 10), ship(Child.c), ship(Child().f))
