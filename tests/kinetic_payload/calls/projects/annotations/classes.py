import abc
import annotationlib
import dataclasses
import enum
from annotationlib import Format
from typing import (
    TYPE_CHECKING,
    Annotated,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
)

from shown import all_of

if TYPE_CHECKING:
    from heavy import Only


class Plain:
    x: int
    y: list[Later]

    def m(self, other: Plain) -> Later:
        return other


class Unresolved:
    x: int
    y: Only

    def m(self, other: Only) -> Only:
        return other

    @classmethod
    def c(cls, a: Only):
        return a

    @property
    def p(self) -> Only:
        return 3


class Scoped:
    T = int

    class Inner:
        pass

    x: T
    y: Inner
    if T is int:
        z: list[T]

    def m(self, a: Inner, b: T):
        return a


class Sub(Plain):
    z: float


class Without(Sub):
    pass


@dataclasses.dataclass
class Data:
    x: int
    y: list[Later] = dataclasses.field(default_factory=list)
    z: ClassVar[Later | None] = None
    me: Data | None = None


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Later = None
    me: Slotted | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataUnresolved:
    x: Only
    y: Only | None = None


@dataclasses.dataclass
class DataSub(Data):
    w: Later = None


class Named(NamedTuple):
    x: int
    y: Later = 3
    z: Named | None = None


class NamedUnresolved(NamedTuple):
    x: Only


class Typed(TypedDict, total=False):
    x: int
    y: Later
    me: Typed


class TypedUnresolved(TypedDict):
    x: Only


class Protocolled(Protocol):
    x: Later

    def m(self) -> Later: ...


T = TypeVar("T")


class Generical(Generic[T]):
    x: T
    y: list[Generical[T]]


class Number(enum.Enum):
    ONE = 1

    def m(self, x: Later) -> Number:
        return x


class Mutated:
    x: int


Mutated.__annotations__["y"] = str


class Replaced:
    x: int


Replaced.__annotations__ = {"x": bytes}


class Commented:
    x: Annotated[int, "doc"]
    y: Annotated[Later, 3]


class Abstract(abc.ABC):
    __slots__ = ("x",)
    x: Later

    @abc.abstractmethod
    def m(self, x: Only) -> Later: ...


def outer():
    class First:
        x: Second

    class Second:
        x: First

    return First, Second


FIRST, SECOND = outer()


class Failure(Exception):
    code: Later

    def __init__(self, code: Only):
        self.code = code


class Meta(type):
    x: Later


class Made(metaclass=Meta):
    y: Later


class Base:
    def __init_subclass__(cls):
        cls.seen = annotationlib.get_annotations(cls, format=Format.FORWARDREF)


class OfBase(Base):
    x: int


class Later:
    pass


def facts():
    return all_of(
        Plain,
        Unresolved,
        Scoped,
        Sub,
        Without,
        Data,
        Slotted,
        DataUnresolved,
        DataSub,
        Named,
        NamedUnresolved,
        Typed,
        TypedUnresolved,
        Protocolled,
        Generical,
        Number,
        Mutated,
        Replaced,
        Commented,
        Abstract,
        FIRST,
        SECOND,
        Failure,
        Meta,
        Made,
        OfBase,
    ) | {
        "same": Plain.__annotations__["y"] == list[Later],
        "inner": Scoped.__annotations__["y"] is Scoped.Inner,
        "each other": FIRST.__annotations__["x"] is SECOND and SECOND.__annotations__["x"] is FIRST,
        "shown": [
            repr(one) for one in (Data(1), Slotted(1), DataUnresolved(x=1), Named(1), DataSub(1))
        ],
        "called": [Unresolved().m(1), Unresolved.c(2), Unresolved().p, Number.ONE.m(4)],
        "keys": sorted(Typed.__optional_keys__),
        "seen": str(OfBase.seen),
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts) > 10)
