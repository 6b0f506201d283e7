import dataclasses
import enum
import functools
import typing

from shipping import ship


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    rate: float
    colour: Colour = Colour.RED

    def doubled(self):
        return dataclasses.replace(self, rate=self.rate * FACTOR)

    class Inner:
        pass


class Wrong(ValueError):
    def __init__(self, config, *, code):
        super().__init__(config)
        self.code = code

    def __reduce__(self):
        return functools.partial(Wrong, code=self.code), self.args


class Point(typing.NamedTuple):
    x: int


UserId = typing.NewType("UserId", int)
T = typing.TypeVar("T")
P = typing.ParamSpec("P")
FACTOR = 2
calls = []


@functools.lru_cache(maxsize=7)
def cached(x: UserId) -> int:
    calls.append(x)
    return x + 1


def typed(x: T, y: typing.Callable[P, int] = len) -> T:
    return x


def main(config, point):
    assert config.colour is Colour.RED and isinstance(point, Point)
    cached(1), cached(1)
    assert len(calls) == 1 and cached.cache_parameters()["maxsize"] == 7
    return config.doubled(), Colour.RED, Point(typed(point.x)), Config.Inner()


def failing(config):
    raise Wrong(config, code=5)


if __name__ == "__main__":
    before = vars(Config)["doubled"]
    config, colour, point, inner = ship(main, Config(1.5), Point(3))
    print(config == Config(3.0), type(config) is Config, colour is Colour.RED)
    print(type(point) is Point, type(inner) is Config.Inner)
    print(vars(Config)["doubled"] is before)
    try:
        ship(failing, Config(1.0))
    except Wrong as error:
        print(type(error) is Wrong, error.code, type(error.args[0]) is Config)
