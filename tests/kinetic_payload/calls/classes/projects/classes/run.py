import abc
import collections
import collections.abc
import dataclasses
import functools
import inspect
import operator
import typing
from dataclasses import KW_ONLY, InitVar, dataclass, field

import shapes


@dataclass
class Plain:
    x: int
    y: list = field(default_factory=list)
    z: int = field(default=3, metadata={"unit": "m"})
    scale: InitVar[int] = 2
    count: typing.ClassVar[int] = 7
    _: KW_ONLY
    k: str = "k"

    def __post_init__(self, scale):
        self.scaled = self.x * scale


@dataclass(slots=True, frozen=True, order=True)
class Slotted:
    x: int = 1
    y: float = 2.0

    def moved(self):
        return dataclasses.replace(self, x=self.x + 1)


@dataclass(slots=True)
class More(Plain):
    w: int = 0

    def tell(self):
        return Plain.__repr__(self), self.scaled


REGISTRY, SEEN = {}, []


class Plugin:
    def __init_subclass__(cls, *, key, **kw):
        super().__init_subclass__(**kw)
        REGISTRY[key] = cls
        SEEN.append(cls.__name__)
        cls.key = key

    @classmethod
    def made(cls, key):
        return REGISTRY[key]()


class One(Plugin, key="one"):
    def run(self):
        return "one", self.key


class Two(One, key="two"):
    pass


class Imported(shapes.Registered):
    key = "imported"
    names: "list[str]"

    def area(self):
        return 4


LOUD = "loud"


class Keyed(shapes.Keyed, key="given", tone=LOUD, times=-2):
    pass


class Both(shapes.Registered):
    key = "both"

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        SEEN.append("both")


class Below(Both):
    key = "below"


class Named:
    calls = 0

    def __set_name__(self, owner, name):
        Named.calls += 1
        self.name, self.owner = name, owner.__name__

    def __get__(self, instance, owner):
        return self if instance is None else (self.name, self.owner, instance.base)


class Holder:
    one = Named()
    two = Named()
    base = 5
    zeta = 1
    alpha = 2


class Meta(type):
    @classmethod
    def __prepare__(meta, name, bases, **kw):
        return collections.OrderedDict(prepared=True)

    def __new__(meta, name, bases, body, *, tag=None):
        cls = super().__new__(meta, name, bases, dict(body))
        cls.read = [key for key in body if not key.startswith("__")]
        cls.tag = tag
        return cls

    def __init__(cls, name, bases, body, **kw):
        SEEN.append("meta " + name)

    def __setattr__(cls, name, value):
        if name in ("a", "b"):
            raise AttributeError("constant")
        super().__setattr__(name, value)

    def __call__(cls, *args):
        return ("made", super().__call__(*args))

    def __len__(cls):
        return len(cls.read)


class Read(metaclass=Meta, tag="t"):
    a = 1
    b = 2

    def c(self):
        return Read.tag


class Shape(abc.ABC):
    sides = 0

    @abc.abstractmethod
    def area(self): ...
    @property
    @abc.abstractmethod
    def name(self): ...
    def twice(self):
        return Square(1).area() * 2


class Square(Shape):
    sides = 0

    def __init__(self, a):
        self.a = a

    def area(self):
        return self.a**2

    name = "square"


class Circle:
    def area(self):
        return 3


Shape.register(Circle)


@shapes.Shape.register
class Foreign:
    pass


@collections.abc.Sequence.register
class Listing:
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@typing.runtime_checkable
class Runs(typing.Protocol):
    speed: int

    def run(self) -> int: ...


class Walks(Runs, typing.Protocol):
    def walk(self): ...


class Runner(Runs):
    speed = 3


class Point(typing.NamedTuple):
    "A point."

    x: int
    y: int = 5

    def norm(self):
        return self.x + self.y


T = typing.TypeVar("T")


class Pairs(typing.NamedTuple, typing.Generic[T]):
    left: T
    right: T


Old = collections.namedtuple("Old", "p q", defaults=[9])


class Options(typing.TypedDict, total=False):
    lr: typing.Required[float]
    steps: int


class MoreOptions(Options):
    name: str


class Box(typing.Generic[T]):
    def __init__(self, item: T):
        self.item = item


class IntBox(Box[int]):
    pass


class Node:
    def __init__(self, children=()):
        self.children = list(children)

    def depth(self):
        return 1 + max((child.depth() for child in self.children), default=0)

    def leaf(self):
        return Leaf()

    @classmethod
    def build(cls, n):
        return cls([cls.build(n - 1)] if n else ())


class Leaf(Node):
    def root(self):
        return Node([self])

    def depth(self):
        return super().depth() + 100

    def cell(self):
        return __class__


def factory(n):
    class Local:
        value = n

        def get(self):
            return self.value, n, Local.value

    return Local


LOCALS = [factory(1), factory(2)]


def counting():
    count = 0

    class Counter:
        def add(self):
            nonlocal count
            count += 1

        def total(self):
            return count

    return Counter


Counter = counting()


class Struct:
    __slots__ = ("_Struct__hidden", "shown")

    def __init__(self):
        self.__hidden, self.shown = 1, 2

    def hidden(self):
        return self.__hidden


class Cached:
    @functools.cached_property
    def value(self):
        return object()

    @functools.lru_cache
    def known(self):
        return 3

    @functools.singledispatchmethod
    def kind(self, x):
        return "any"

    @kind.register
    def _(self, x: int):
        return "int"

    get = operator.attrgetter("value")


class Base:
    flag = False


class Sub(Base):
    flag = False


class Error(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


def tried(function, *arguments, **keywords):
    try:
        return repr(function(*arguments, **keywords))
    except Exception as error:
        return type(error).__name__, str(error)


def hints(cls):
    return {key: hint for key, hint in typing.get_type_hints(cls).items() if hint is not KW_ONLY}


def fields(cls):
    missing = dataclasses.MISSING
    return [
        (f.name, f.default is missing, f.default_factory is missing, f.kw_only, f.init)
        + (dict(f.metadata), f.type, str(f._field_type))
        for f in dataclasses.fields(cls)
    ]


EVERY = [cls for cls in globals().values() if isinstance(cls, type) and cls.__module__ == __name__]


def about(cls):
    """Return what is looked at in every class."""
    # Slots have their places before there is anything else.
    put = sorted if "__slots__" in vars(cls) else list
    bases = getattr(cls, "__orig_bases__", ())
    return {
        "attributes": put(key for key in vars(cls) if key[0] != "_"),
        # Without those that are made when they are used.
        "all": sorted(vars(cls).keys() - {"__annotations__", "__slotnames__"}),
        "is": (cls.__name__, cls.__module__, cls.__doc__, [base.__name__ for base in cls.__mro__]),
        "type": (type(cls).__name__, inspect.isabstract(cls)),
        "bases": [getattr(base, "__qualname__", str(base)) for base in bases],
        "signature": tried(inspect.signature, cls),
        "hints": tried(hints, cls),
        "layout": (cls.__basicsize__, cls.__dictoffset__ != 0),
    }


def facts():
    import __main__

    found, counted = {}, Counter().total()
    for index, cls in enumerate([*EVERY, *LOCALS]):
        for what, fact in about(cls).items():
            found[f"{index} {cls.__qualname__} {what}"] = fact
    found["plain"] = repr(Plain(1)), Plain(2, scale=5).scaled, Plain(1) == Plain(1), Plain.count
    found["fields"] = fields(Plain), fields(Slotted), fields(More)
    found["replace"] = tried(dataclasses.replace, Plain(1), x=2), repr(Slotted().moved())
    found["frozen"] = tried(setattr, Slotted(), "x", 1), hasattr(Slotted(), "__dict__")
    found["ordered"] = Slotted(1) < Slotted(2), hash(Slotted()) == hash(Slotted())
    found["more"] = More(1, w=2).tell(), tried(setattr, More(1), "w", 5)
    found["registry"] = sorted(REGISTRY), SEEN, Plugin.made("two").run(), REGISTRY["one"] is One

    class Three(Plugin, key="three"):
        pass

    found["registered later"] = REGISTRY.pop("three") is Three and SEEN.pop(), Three.key
    imported = shapes.REGISTRY["imported"]
    found["imported hook"] = sorted(shapes.REGISTRY), imported().area(), shapes.BODIES["imported"]
    found["imported keywords"] = shapes.REGISTRY["given"] is Keyed, Keyed.tone, Keyed.times
    found["imported registry"] = shapes.REGISTRY["below"] is Below, shapes.TONES
    found["set name"] = Holder().one, Holder().two, Named.calls
    found["order"] = [name for name in vars(Holder) if name[0] != "_"]
    found["meta"] = Read.read, Read.tag, tried(setattr, Read, "a", 3), len(Read), type(Read) is Meta
    found["meta calls"] = Read()[0], Read()[1].c()

    class Again(Read, tag="u"):
        d = 4

    found["meta again"] = Again.read, Again.tag, SEEN.pop()
    found["abstract"] = tried(Shape), sorted(Shape.__abstractmethods__)
    found["concrete"] = Square(3).area(), Square(1).twice()
    found["virtual"] = isinstance(Circle(), Shape), issubclass(int, Shape)
    found["virtual, imported"] = isinstance(Foreign(), shapes.Shape)
    match Listing(1, 2):
        case [a, b]:
            found["sequence"] = a, b, isinstance(Listing(), collections.abc.Sequence)
    found["protocol"] = isinstance(Runner(), Runs), isinstance(3, Runs), tried(Runs)
    found["is protocol"] = Runs._is_protocol, Runner._is_protocol

    class Like:
        speed = 1

        def run(self):
            return 1

    found["structural"] = isinstance(Like(), Runs), tried(isinstance, Like(), Walks)
    found["tuples"] = repr(Point(1)), Point(1).norm(), Point._fields, Point._field_defaults
    found["pairs"] = Pairs(1, 2).right, str(Pairs[int]), Point(1) == (1, 5), tried(Point)
    found["changed"] = Point(1)._replace(y=0), Old(1).q
    found["typed"] = Options(lr=1.0), sorted(Options.__required_keys__), Options.__total__
    found["optional"] = sorted(MoreOptions.__optional_keys__)
    found["generic"] = str(Box[int]), Box[str]("x").item, [str(p) for p in Box.__parameters__]
    found["specialised"] = IntBox(1).item, typing.get_args(IntBox.__orig_bases__[0])
    found["recursive"] = Node.build(3).depth(), Leaf().root().depth()
    found["of each other"] = type(Node().leaf()) is Leaf, Leaf().cell() is Leaf
    found["locals"] = [cls().get() for cls in LOCALS], LOCALS[0] is not LOCALS[1]
    Counter().add()
    found["shared variable"] = Counter().total() - counted
    found["slots"] = Struct().hidden(), Struct().shown, tried(setattr, Struct(), "z", 1)
    cached = Cached()
    found["cached"] = cached.value is cached.value, Cached.get(cached) is cached.value
    found["methods"] = cached.known(), cached.kind(1), cached.kind("")
    Base.flag = True
    found["own attribute"] = Sub.flag
    Base.flag = False
    found["error"] = tried(Error, 3), Error(3).code
    found["main"] = __main__.Plain is Plain, __main__.Read is Read
    return found


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
