"""Annotations that nobody has computed yet: a job finds them as they are here.

Each script's `facts` is called as it is and shipped, and must return the same both times.
"""

import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="Until Python 3.13 annotations are computed at once"
)

SHOWN = """
    import annotationlib, dataclasses, inspect, re, typing
    from annotationlib import Format
    from types import FunctionType
    from typing import TYPE_CHECKING, Annotated, ClassVar, Generic, NamedTuple, Protocol, TypedDict, TypeVar
    if TYPE_CHECKING:
        from heavy import Only

    def shown(what, form):
        try:
            found = str(annotationlib.get_annotations(what, format=form))
        except NameError as error:
            return repr(error)
        return re.sub(" at 0x[0-9a-f]+", "", found)

    def all_of(*many):
        found = {}
        for one in many:
            found[f"{one.__name__} hints"] = "NameError"
            try:
                found[f"{one.__name__} hints"] = str(typing.get_type_hints(one))
            except NameError:
                pass
            for name, part in [("", one), *vars(one).items()]:
                part = getattr(part, "__func__", getattr(part, "fget", part))
                if part is one or isinstance(part, FunctionType):
                    for form in (Format.VALUE, Format.FORWARDREF, Format.STRING):
                        found[f"{one.__name__}.{name} {form.name}"] = shown(part, form)
            if dataclasses.is_dataclass(one):
                found[f"{one.__name__} fields"] = [(f.name, str(f.type)) for f in dataclasses.fields(one)]
        return found
"""
FUNCTIONS = """
    def plain(x: int, y: list[Later]) -> dict[str, Later]: return x
    def unresolved(x: Only, y: int) -> Only.inner: return x
    def with_defaults(x: Only = 3, *, k: Later = 4): return x, k
    def mutated(x: int): return x
    mutated.__annotations__["y"] = str
    def replaced(x: int): return x
    replaced.__annotations__ = {"x": float}
    def generic[T: int = bool, **P = [int]](x: T) -> list[T]: return x
    type Missing = list[Only]
    def bounded[T: Only](x: T) -> Missing: return x
    def outer():
        class Local: pass
        def inner(x: Local) -> Nowhere: return x
        return inner, Local
    INNER, LOCAL = outer()
    def makes_a_class():
        class Made:
            x: Later
            y: "AsText"
            def m(self, a: Only) -> Later: return a
        return Made
    class Later: pass
    class AsText: pass

    def facts():
        made = makes_a_class()
        return all_of(plain, unresolved, with_defaults, replaced, INNER, made) | {
            "mutated": mutated.__annotations__,
            "same": plain.__annotations__["y"] == list[Later],
            "closure": annotationlib.get_annotations(INNER, format=Format.FORWARDREF)["x"] is LOCAL,
            "signature": str(inspect.signature(unresolved, annotation_format=Format.STRING)),
            "called": [plain(1, 2), unresolved(3, 4), with_defaults(), INNER(5), made().m(6)],
            "parameters": str(generic.__type_params__[0].__bound__),
            "defaults": [f"{one} {one.__default__} {one.__infer_variance__}" for one in generic.__type_params__],
            "bounded": bounded(6),
        }
"""
CLASSES = """
    import abc, enum

    class Plain:
        x: int
        y: list[Later]
        def m(self, other: Plain) -> Later: return other
    class Unresolved:
        x: int
        y: Only
        def m(self, other: Only) -> Only: return other
        @classmethod
        def c(cls, a: Only): return a
        @property
        def p(self) -> Only: return 3
    class Scoped:
        T = int
        class Inner: pass
        x: T
        y: Inner
        if T is int:
            z: list[T]
        def m(self, a: Inner, b: T): return a
    class Sub(Plain):
        z: float
    class Without(Sub): pass
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
        def m(self, x: Later) -> Number: return x
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
        def __init__(self, code: Only): self.code = code
    class Meta(type):
        x: Later
    class Made(metaclass=Meta):
        y: Later
    class Base:
        def __init_subclass__(cls):
            cls.seen = annotationlib.get_annotations(cls, format=Format.FORWARDREF)
    class OfBase(Base):
        x: int
    class Later: pass

    def facts():
        return all_of(
            Plain, Unresolved, Scoped, Sub, Without, Data, Slotted, DataUnresolved, DataSub, Named,
            NamedUnresolved, Typed, TypedUnresolved, Protocolled, Generical, Number, Mutated, Replaced,
            Commented, Abstract, FIRST, SECOND, Failure, Meta, Made, OfBase,
        ) | {
            "same": Plain.__annotations__["y"] == list[Later],
            "inner": Scoped.__annotations__["y"] is Scoped.Inner,
            "each other": FIRST.__annotations__["x"] is SECOND and SECOND.__annotations__["x"] is FIRST,
            "shown": [repr(one) for one in (Data(1), Slotted(1), DataUnresolved(x=1), Named(1), DataSub(1))],
            "called": [Unresolved().m(1), Unresolved.c(2), Unresolved().p, Number.ONE.m(4)],
            "keys": sorted(Typed.__optional_keys__),
            "seen": str(OfBase.seen),
        }
"""
OF_LIBRARIES = """
    import attrs, equinox, flax.struct, jax, msgspec, pydantic
    import jax.numpy as jnp

    class Model(pydantic.BaseModel):
        x: int
        y: list[Model] = []
        z: Other | None = None
        def m(self, a: Only) -> Model: return self
    class Other(pydantic.BaseModel):
        a: str = "a"
    Model.model_rebuild()
    @attrs.define
    class Defined:
        x: int
        y: Later | None = None
        z: list[Defined] = attrs.field(factory=list)
        def m(self, a: Only): return self.x
    @attrs.frozen
    class Frozen:
        x: Only = 3
    class Struct(msgspec.Struct):
        x: int
        y: list[Struct] = []
        z: Later | None = None
    class Module(equinox.Module):
        w: jax.Array
        n: int = equinox.field(static=True, default=3)
        def __call__(self, x: jax.Array) -> jax.Array: return x * self.w + self.n
    class Node(flax.struct.PyTreeNode):
        w: jax.Array
        n: int = flax.struct.field(pytree_node=False, default=2)
        def m(self, a: Later) -> Node: return self
    class Later: pass

    def facts():
        module = Module(jnp.ones(2))
        return all_of(Model, Other, Defined, Frozen, Struct, Module, Node) | {
            "shown": [repr(one) for one in (Model(x=1, y=[{"x": 2}], z={}), Defined(1), Frozen(), Struct(1))],
            "called": [Model(x=1).m(3).x, Defined(1).m(2), str(module(jnp.ones(2)))],
            "leaves": [str(jax.tree.leaves(module)), str(jax.tree.leaves(Node(jnp.ones(2))))],
        }
"""
SAME = """
    if __name__ == "__main__":
        from shipping import ship
        there, here = ship(facts), facts()
        for name in here:
            if here[name] != there[name]:
                print(name, "is", there[name], "and not", here[name])
        print(len(here) > 10)
"""
LIBRARIES = ("attrs", "equinox", "flax", "jax", "pydantic")


@pytest.mark.parametrize(
    "script", [FUNCTIONS, CLASSES, OF_LIBRARIES], ids=["def", "class", "other"]
)
def test_annotations_are_as_lazy_in_a_job_as_here(project, script):
    if script is OF_LIBRARIES and not all(map(find_spec, LIBRARIES)):
        pytest.skip(f"It needs {', '.join(LIBRARIES)}")
    project.write("train.py", SHOWN + script + SAME)

    assert project.run("train.py") == "True"


def test_a_function_comes_home_with_annotations_that_name_nothing(project):
    script = """
    def make():
        def inner(x: Only) -> Nowhere: return x + 1
        class Local:
            x: Only
            y: int
            def m(self, other: Local) -> Only: return 5
        return inner, Local

    if __name__ == "__main__":
        from shipping import ship
        inner, local = ship(make)
        print(inner(1), local().m(2), shown(inner, Format.STRING), shown(local, Format.STRING))
        print(annotationlib.get_annotations(local.m, format=Format.FORWARDREF)["other"] is local)
    """
    project.write("train.py", SHOWN + script)

    assert project.run("train.py").splitlines() == [
        "2 5 {'x': 'Only', 'return': 'Nowhere'} {'x': 'Only', 'y': 'int'}",
        "True",
    ]


def test_what_cannot_be_pickled_is_found_beside_annotations_that_name_nothing(project):
    script = """
    import threading
    LOCK = threading.Lock()
    def train(x: Only):
        return LOCK

    if __name__ == "__main__":
        from shipping import ship
        try:
            ship(train, 1)
        except Exception as error:
            print(error)
    """
    project.write("train.py", SHOWN + script)

    assert "global 'LOCK'" in project.run("train.py")
