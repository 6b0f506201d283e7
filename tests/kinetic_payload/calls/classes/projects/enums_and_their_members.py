import abc
import enum


class Way(enum.Enum):
    NORTH = 1
    SOUTH = 2

    def __init__(self, value):
        self.itself = [self]

    @property
    def sign(self):
        return SIGNS[self]

    def next(self):
        return ORDER[(ORDER.index(self) + 1) % 2]


SIGNS = {Way.NORTH: "+", Way.SOUTH: "-"}
ORDER = [Way.NORTH, Way.SOUTH]
Way.DEFAULT = Way.SOUTH
Way.NORTH.opposite, Way.SOUTH.opposite = Way.SOUTH, Way.NORTH


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4

    def name_of(self):
        return NAMES.get(self)


NAMES = {Access.READ | Access.WRITE: "both", Access.RUN: "run"}


class Number(enum.IntFlag):
    ONE = 1
    TWO = 2

    def is_listed(self):
        return [one is self for one in LISTED]


LISTED = [Number.ONE | Number.TWO, Number.ONE, Number(9), ~Number.TWO]


class AbstractEnum(abc.ABCMeta, enum.EnumMeta):
    def first(cls):
        return next(iter(cls))


class Named(abc.ABC):
    @abc.abstractmethod
    def named(self): ...


class Turn(Named, enum.Enum, metaclass=AbstractEnum):
    LEFT = 1
    RIGHT = 2

    def named(self):
        return self.name


def facts():
    south, write = Way.SOUTH, Access.READ | Access.WRITE
    numbers = Number(3), Number.ONE, Number(9), ~Number.TWO
    return {
        "table": [way.sign for way in Way],
        "list": Way.NORTH.next() is south,
        "attributes": (Way.DEFAULT is south, Way.NORTH.opposite is south, south.itself[0] is south),
        "combined": [one.name_of() for one in (write, Access.RUN, Access.READ)],
        "combined integers": [one.is_listed() for one in numbers],
        "members": [turn.named() for turn in Turn],
        "several metaclasses": Turn.first() is Turn.LEFT,
        "abstract": isinstance(Turn.LEFT, Named) and not isinstance(1, Turn),
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
