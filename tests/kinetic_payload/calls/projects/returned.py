"""Values of a script's types: a job gets them as they are, and the client gets values of its own types back."""

import contextlib
import dataclasses
import enum
import functools
import logging
import typing
import weakref

from shipping import ship

T, P, Ts = typing.TypeVar("T"), typing.ParamSpec("P"), typing.TypeVarTuple("Ts")
UserId = typing.NewType("UserId", int)
FACTOR, log = 2, logging.getLogger("mine")


class Colour(enum.Enum):
    RED = 1


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    rate: float
    colour: Colour = Colour.RED

    def doubled(self):
        return dataclasses.replace(self, rate=self.rate * FACTOR)

    class Inner:
        pass


@dataclasses.dataclass(slots=True, weakref_slot=True)
class User:
    id: UserId
    made_by: typing.Optional[typing.Callable[P, T]] = None
    parts: typing.Optional[typing.Tuple[typing.Unpack[Ts]]] = None
    rest: list = dataclasses.field(default_factory=list)


class Wrong(ValueError):
    def __init__(self, config, *, code):
        super().__init__(config)
        self.code = code

    def __reduce__(self):
        return functools.partial(Wrong, code=self.code), self.args


class Pair(typing.NamedTuple, typing.Generic[T]):
    left: T


class Typed(typing.TypedDict):
    x: int


class Child:
    __slots__ = ("__private", "a")

    def __init__(self):
        self.__private = "p"

    def p(self):
        return self.__private

    @classmethod
    def c(cls):
        return cls.__name__


class Open(Child):
    __slots__ = ("b", "__dict__", "__weakref__")


class Model:
    seen = weakref.WeakSet()
    by_name = weakref.WeakValueDictionary()

    @functools.cached_property
    def size(self):
        return 7


@functools.lru_cache(maxsize=7)
def cached(x: UserId) -> int:
    log.warning("computed")
    return x + 1


@contextlib.contextmanager
def context(x: T, y: typing.Callable[P, int] = len) -> T:
    yield x


def main(config, user, pair, opened, model):
    assert config.colour is Colour.RED and type(pair) is Pair and UserId.__module__ == "__main__"
    assert typing.get_type_hints(User)["id"] is UserId
    assert [hasattr(one, "__dict__") for one in (config, user, Child(), opened)] == [0, 0, 0, 1]
    assert cached(1) == cached(1) == 2 and cached.cache_info()[:3] == (1, 1, 7)
    assert model.size == 7 and not Model.seen

    class Local:
        @functools.lru_cache(maxsize=3)
        def double(self, x):
            return 2 * x

    with context(1) as x:
        opened.b += x
    made = config.doubled(), User(user.id + 1), Pair[int](2), opened, model, Local()
    return (
        made,
        (UserId, P, Ts, T, cached, Colour.RED, Flags.A | Flags.B),
        Config.Inner(),
        Typed(x=1),
    )


def failing(config):
    raise Wrong(config, code=5)


if __name__ == "__main__":
    before, opened = vars(Config)["doubled"], Open()
    opened.a, opened.b, opened.c = 1, 2, 3
    made, same, inner, typed = ship(main, Config(1.5), User(UserId(1)), Pair(3), opened, Model())
    *equal, back, model, local = made
    print(equal == [Config(3.0), User(2), Pair(2)], type(equal[2]) is Pair, type(back) is Open)
    print((back.a, back.b, back.c, back.p()), type(inner) is Config.Inner, typed, local.double(4))
    print(vars(model), Model().size, type(local).double.cache_parameters()["maxsize"])
    print(same == (UserId, P, Ts, T, cached, Colour.RED, Flags.A | Flags.B), same[4] is cached)
    print(vars(Config)["doubled"] is before, ship(Child.c), ship(Child().p))
    try:
        ship(failing, Config(1.0))
    except Wrong as error:
        print(type(error) is Wrong, error.code, type(error.args[0]) is Config)
