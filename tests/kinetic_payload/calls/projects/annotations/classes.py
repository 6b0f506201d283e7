import abc
import annotationlib
import dataclasses
import enum
from annotationlib import Format
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

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


class Without(Plain):
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


class Named(NamedTuple):
    x: int
    y: Later = 3
    z: Named | None = None


class NamedUnresolved(NamedTuple):
    x: Only


class Typed(TypedDict, total=False):
    x: Only
    y: Later
    me: Typed


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


class Replaced:
    x: int


Mutated.__annotations__["y"] = str
Replaced.__annotations__ = {"x": bytes}


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
    plain = all_of(Plain, Unresolved, Scoped, Without, Generical, Number, Mutated, Replaced)
    generated = all_of(Data, Slotted, DataUnresolved, Named, NamedUnresolved, Typed)
    made = [Data(1), Slotted(1), DataUnresolved(x=1), Named(1)]
    first, second = FIRST.__annotations__["x"], SECOND.__annotations__["x"]
    return (
        plain
        | generated
        | all_of(Abstract, FIRST, SECOND, Meta, Made, OfBase)
        | {
            "same": Plain.__annotations__["y"] == list[Later],
            "inner": Scoped.__annotations__["y"] is Scoped.Inner,
            "each other": first is SECOND and second is FIRST,
            "shown": [*map(repr, made), sorted(Typed.__optional_keys__), str(OfBase.seen)],
            "called": [Unresolved().m(1), Unresolved.c(2), Unresolved().p, Number.ONE.m(4)],
        }
    )


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts) > 10)
