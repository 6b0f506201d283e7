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


def facts():
    return {
        "table": [way.sign for way in Way],
        "list": Way.NORTH.next() is Way.SOUTH,
        "attributes": (
            Way.DEFAULT is Way.SOUTH,
            Way.NORTH.opposite is Way.SOUTH,
            Way.SOUTH.itself[0] is Way.SOUTH,
        ),
        "combined": (
            (Access.READ | Access.WRITE).name_of(),
            Access.RUN.name_of(),
            Access.READ.name_of(),
        ),
        "combined integers": [
            one.is_listed() for one in (Number(3), Number.ONE, Number(9), ~Number.TWO)
        ],
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
