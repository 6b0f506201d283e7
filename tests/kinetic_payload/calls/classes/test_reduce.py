"""Classes of the entry script: what a function finds of them here, it finds of them in a job.

Each script's `facts` is called as it is and shipped, and must return the same both times.
"""

import sys
from importlib.util import find_spec

import pytest

SAME = """

    if __name__ == "__main__":
        from shipping import ship
        there, here = ship(facts), facts()
        for name in here:
            if here[name] != there[name]:
                print(name, "is", there[name], "and not", here[name])
        print(len(here), "facts")
"""

ENUMS = """
    import dataclasses, datetime, enum

    class Planet(enum.Enum):
        EARTH = (5.976e+24, 6.37814e6)
        MARS = (6.421e+23, 3.3972e6)
        RED = MARS
        def __init__(self, mass, radius):
            self.mass = mass
            self.radius = radius
        @property
        def surface_gravity(self):
            return 6.67300E-11 * self.mass / (self.radius * self.radius)
        @classmethod
        def heaviest(cls):
            return max(cls, key=lambda planet: planet.mass)
        @classmethod
        def _missing_(cls, value):
            return cls.EARTH if value == "home" else None

    class Coord(bytes, enum.Enum):
        def __new__(cls, value, label, unit):
            obj = bytes.__new__(cls, [value])
            obj._value_ = value
            obj.label = label
            obj.unit = unit
            return obj
        PX = (0, 'P.X', 'km')
        PY = (1, 'P.Y', 'km')

    class Numbered(enum.Enum):
        def __new__(cls, *names):
            obj = object.__new__(cls)
            obj._value_ = len(cls.__members__) + 1
            for name in names:
                cls._value2member_map_[name] = obj
            return obj
        ONE = "one", "uno"
        TWO = "two", "due"

    class Flags(enum.Flag):
        A = enum.auto()
        B = enum.auto()
        BOTH = A | B
        def __init__(self, *_):
            self.extra = f"extra {self._value_}"

    class Kept(enum.IntFlag, boundary=enum.KEEP):
        LOW = 1
        HIGH = 8

    class Strict(enum.Flag, boundary=enum.STRICT):
        X = 1

    class Names(enum.StrEnum):
        def _generate_next_value_(name, start, count, last_values):
            return name.upper() + "!"
        first = enum.auto()
        second = enum.auto()

    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 10
        LOWEST = 1

    @dataclasses.dataclass
    class Creature:
        size: str
        legs: int = 4

    class Animal(Creature, enum.Enum):
        BEETLE = "small", 6
        DOG = "medium"

    class Day(datetime.date, enum.Enum):
        EPOCH = 1970, 1, 1

    class Pair(tuple, enum.Enum):
        P = (1, 2)

    def twice(x):
        return 2 * x, Deeds.DOUBLE.name

    class Deeds(enum.Enum):
        DOUBLE = enum.member(twice)
        HIDDEN = enum.nonmember(17)
        LISTED = [1, 2]
        def plain(self):
            return self.name

    class Meta(enum.EnumMeta):
        calls = []
        def __new__(meta, name, bases, body, **kw):
            meta.calls.append(name)
            return super().__new__(meta, name, bases, body, **kw)
        def first(cls):
            return list(cls)[0].name

    class Own(enum.Enum, metaclass=Meta):
        Z = 1

    class Base(enum.Enum):
        def shout(self):
            return self.name + "!"
    class Derived(Base):
        D = 1

    ALL = (Planet, Coord, Numbered, Flags, Kept, Strict, Names, Level, Animal, Day, Pair, Deeds, Own, Derived)

    def shown(member):
        name = getattr(member.value, "__name__", "")
        return name or tried(repr, member), str(member), format(member), name or repr(member.value)

    def tried(function, *arguments):
        try:
            return repr(function(*arguments))
        except Exception as error:
            return type(error).__name__, str(error)

    def facts():
        found = {}
        for one in ALL:
            name = one.__name__
            found[name] = [shown(member) for member in one]
            found[name + " members"] = {key: value.name for key, value in one.__members__.items()}
            found[name + " vars"] = sorted(vars(one))
            found[name + " by value"] = all(one(member.value) is member for member in one)
            found[name + " by key"] = all(one[key] is member for key, member in one.__members__.items())
            found[name + " attributes"] = [
                {key: value for key, value in sorted(vars(member).items()) if key[0] != "_"}
                for member in one
            ]
            found[name + " of it"] = all(isinstance(member, one) and member.__objclass__ is one for member in one)
        found["planet"] = Planet.EARTH.mass, Planet.MARS.surface_gravity, Planet.heaviest() is Planet.EARTH
        found["missing"] = Planet("home") is Planet.EARTH, tried(lambda: Planet("x"))
        found["alias"] = Planet.RED is Planet.MARS, Level.LOWEST is Level.LOW
        found["coord"] = bytes(Coord.PY), Coord.PY.label, Coord(1) is Coord.PY, Coord.PX == b"\\0"
        found["further values"] = Numbered("uno") is Numbered.ONE, Numbered(2) is Numbered("due")
        found["flags"] = Flags.A | Flags.B is Flags.BOTH, [f.name for f in Flags.BOTH], repr(~Flags.A), Flags.B in Flags.BOTH
        found["extra"] = Flags.A.extra
        found["boundaries"] = repr(Kept(16)), tried(lambda: Strict(4)), repr(Kept.LOW | Kept.HIGH)
        found["words"] = Names.first + "x", f"{Names.second}", Names("FIRST!") is Names.first
        found["integer"] = Level.HIGH + 1, Level.HIGH > Level.LOW, sorted(Level)[0].name
        found["mixed in"] = Animal.DOG.legs, Animal.BEETLE.size, repr(Animal.DOG.value)
        found["day"] = Day.EPOCH.year, Day.EPOCH == datetime.date(1970, 1, 1)
        found["pair"] = Pair.P[1], len(Pair.P)
        found["deeds"] = Deeds.DOUBLE.value(4), Deeds.HIDDEN, Deeds([1, 2]) is Deeds.LISTED, Deeds.DOUBLE.plain()
        found["own metaclass"] = Own.first(), Meta.calls, type(Own) is Meta
        found["derived"] = Derived.D.shout()
        return found
"""


def test_enums_of_a_script_are_in_a_job_what_they_are_here(project):
    project.write("run.py", ENUMS + SAME)

    assert project.run("run.py") == "114 facts"


def test_members_of_an_enum_come_home_as_the_clients_own(project):
    project.write(
        "run.py",
        ENUMS
        + """
    def back(member):
        class Made(enum.Enum):
            M = 1, 2
            def __init__(self, x, y):
                self.sum = x + y
        return member, Planet.EARTH, [*Coord], Flags.A | Flags.B, Animal.DOG, Made.M
    if __name__ == "__main__":
        from shipping import ship
        mars, earth, coords, both, dog, made = ship(back, Planet.MARS)
        print(mars is Planet.MARS, earth is Planet.EARTH, coords == [*Coord] and coords[0] is Coord.PX)
        print(both is Flags.BOTH, dog is Animal.DOG, Planet.EARTH.mass, made.sum, made.value)
    """,
    )

    assert project.run("run.py") == "True True True\nTrue True 5.976e+24 3 (1, 2)"


def test_an_enum_may_lead_to_its_members_in_any_way(project):
    project.write(
        "run.py",
        """
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
            "attributes": (Way.DEFAULT is Way.SOUTH, Way.NORTH.opposite is Way.SOUTH, Way.SOUTH.itself[0] is Way.SOUTH),
            "combined": ((Access.READ | Access.WRITE).name_of(), Access.RUN.name_of(), Access.READ.name_of()),
            "combined integers": [one.is_listed() for one in (Number(3), Number.ONE, Number(9), ~Number.TWO)],
        }
    """
        + SAME,
    )

    assert project.run("run.py") == "5 facts"


def test_an_enum_may_have_a_metaclass_of_several(project):
    project.write(
        "run.py",
        """
    import abc, enum

    class AbstractEnum(abc.ABCMeta, enum.EnumMeta):
        def first(cls):
            return next(iter(cls))
    class Named(abc.ABC):
        @abc.abstractmethod
        def named(self): ...
    class Way(Named, enum.Enum, metaclass=AbstractEnum):
        UP = 1
        DOWN = 2
        def named(self):
            return self.name

    def facts():
        return {
            "members": [way.named() for way in Way],
            "metaclass": Way.first() is Way.UP,
            "abstract": isinstance(Way.UP, Named) and not isinstance(1, Way),
        }
    """
        + SAME,
    )

    assert project.run("run.py") == "3 facts"


def test_structs_of_a_script_validate_in_a_job_as_here(project):
    project.write(
        "run.py",
        """
    import typing
    import msgspec

    class Server(msgspec.Struct):
        port: typing.Annotated[int, msgspec.Meta(ge=1, title="Port", extra={"a": 1})] = 80
        host: typing.Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "here"

    def read(text):
        try:
            return repr(msgspec.json.decode(text, type=Server))
        except msgspec.ValidationError as error:
            return str(error)

    def facts():
        return {
            "read": [read(text) for text in ('{"port": 0}', '{"host": "A"}', '{"port": 3}')],
            "schema": msgspec.json.schema(Server),
            "metadata": repr(typing.get_type_hints(Server, include_extras=True)),
        }
    """
        + SAME,
    )

    assert project.run("run.py") == "3 facts"


@pytest.mark.timeout(400)  # Two processes import JAX.
@pytest.mark.skipif(find_spec("equinox") is None, reason="Equinox is not installed")
def test_abstract_pytrees_of_a_script_travel(project):
    project.write(
        "run.py",
        """
    import abc
    import equinox, jax

    @jax.tree_util.register_pytree_node_class
    class Node(abc.ABC):
        def __init__(self, x):
            self.x = x
        @abc.abstractmethod
        def name(self): ...
        def tree_flatten(self):
            return (self.x,), None
        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)
    @jax.tree_util.register_pytree_node_class
    class Leaf(Node):
        def name(self):
            return "leaf"

    class Layer(equinox.Module):
        size: equinox.AbstractVar[int]
        @abc.abstractmethod
        def __call__(self, x): ...
    class Double(Layer):
        size: int = 3
        def __call__(self, x):
            return 2 * x

    def refused(make):
        try:
            return make()
        except TypeError as error:
            return str(error)

    def facts():
        double = jax.tree_util.tree_map(lambda x: x + 1, Double())
        leaf = jax.tree_util.tree_map(lambda x: x + 1, Leaf(1))
        return {
            "leaf": (leaf.x, leaf.name(), isinstance(leaf, Node)),
            "module": (double.size, double(4), isinstance(double, Layer)),
            "abstract": (refused(lambda: Node(1)), refused(Layer)),
        }
    """
        + SAME,
    )

    assert project.run("run.py") == "3 facts"


def test_values_whose_classes_name_types_of_the_script_come_home(project):
    project.write(
        "run.py",
        """
    import typing
    from dataclasses import dataclass

    UserId = typing.NewType("UserId", int)
    P = typing.ParamSpec("P")
    Ts = typing.TypeVarTuple("Ts")
    T = typing.TypeVar("T")

    @dataclass
    class User:
        id: UserId
        made_by: typing.Optional[typing.Callable[P, T]] = None
        parts: typing.Optional[typing.Tuple[typing.Unpack[Ts]]] = None

    def main(user):
        return User(user.id + 1), UserId, P, Ts, T, UserId.__module__, typing.get_type_hints(User)["id"] is UserId

    if __name__ == "__main__":
        from shipping import ship
        user, *types, module, same = ship(main, User(UserId(1)))
        print(user == User(2), types == [UserId, P, Ts, T], module, same)
    """,
    )

    assert project.run("run.py") == "True True __main__ True"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="It needs the syntax of Python 3.12")
def test_parameters_and_aliases_of_types_travel_both_ways(project):
    project.write(
        "run.py",
        """
    from dataclasses import dataclass

    type Many[T] = list[T]
    class Call[*Ts, **P]:
        pass
    @dataclass
    class Box[T]:
        content: Many[T]

    def main(box):
        return box, Box([2]), Call(), str(Many), Many.__module__, [str(one) for one in Call.__type_params__ + Box.__type_params__]

    if __name__ == "__main__":
        from shipping import ship
        one, two, call, *said = ship(main, Box([1]))
        print(one == Box([1]), two == Box([2]), type(call) is Call, *said)
    """,
    )

    assert project.run("run.py") == "True True True Many __main__ ['Ts', 'P', 'T']"


CLASSES = """
    import abc, collections, collections.abc, dataclasses, functools, inspect, operator, typing
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
        def __init__(self, a): self.a = a
        def area(self): return self.a ** 2
        name = "square"
    class Circle:
        def area(self): return 3
    Shape.register(Circle)
    @shapes.Shape.register
    class Foreign: pass
    @collections.abc.Sequence.register
    class Listing:
        def __init__(self, *items): self.items = items
        def __len__(self): return len(self.items)
        def __getitem__(self, index): return self.items[index]

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
        def norm(self): return self.x + self.y
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
        def __init__(self, item: T): self.item = item
    class IntBox(Box[int]):
        pass

    class Node:
        def __init__(self, children=()): self.children = list(children)
        def depth(self): return 1 + max((child.depth() for child in self.children), default=0)
        def leaf(self): return Leaf()
        @classmethod
        def build(cls, n): return cls([cls.build(n - 1)] if n else ())
    class Leaf(Node):
        def root(self): return Node([self])
        def depth(self): return super().depth() + 100
        def cell(self): return __class__

    def factory(n):
        class Local:
            value = n
            def get(self): return self.value, n, Local.value
        return Local
    LOCALS = [factory(1), factory(2)]

    def counting():
        count = 0
        class Counter:
            def add(self):
                nonlocal count
                count += 1
            def total(self): return count
        return Counter
    Counter = counting()

    class Struct:
        __slots__ = ("_Struct__hidden", "shown")
        def __init__(self): self.__hidden, self.shown = 1, 2
        def hidden(self): return self.__hidden
    class Cached:
        @functools.cached_property
        def value(self): return object()
        @functools.lru_cache
        def known(self): return 3
        @functools.singledispatchmethod
        def kind(self, x): return "any"
        @kind.register
        def _(self, x: int): return "int"
        get = operator.attrgetter("value")
    class Base:
        flag = False
    class Sub(Base):
        flag = False
    class Error(Exception):
        def __init__(self, code): super().__init__(f"code {code}"); self.code = code

    def tried(function, *arguments, **keywords):
        try:
            return repr(function(*arguments, **keywords))
        except Exception as error:
            return type(error).__name__, str(error)

    def hints(cls):
        return {key: hint for key, hint in typing.get_type_hints(cls).items() if hint is not KW_ONLY}

    def fields(cls):
        return [
            (f.name, f.default is dataclasses.MISSING, f.default_factory is dataclasses.MISSING, f.kw_only,
             f.init, dict(f.metadata), f.type, str(f._field_type))
            for f in dataclasses.fields(cls)
        ]

    EVERY = (Plain, Slotted, More, Plugin, One, Two, Imported, Keyed, Both, Below, Named, Holder, Meta, Read, Shape, Square,
             Circle, Foreign, Listing, Runs, Walks, Runner, Point, Pairs, Old, Options, MoreOptions, Box, IntBox, Node,
             Leaf, *LOCALS, Struct, Cached, Base, Sub, Error)

    def facts():
        import __main__
        found, counted = {}, Counter().total()
        for index, cls in enumerate(EVERY):
            name = f"{index} {cls.__qualname__}"
            # Slots have their places before there is anything else.
            put = sorted if "__slots__" in vars(cls) else list
            found[name + " attributes"] = put(key for key in vars(cls) if key[0] != "_")
            found[name + " all"] = sorted(vars(cls).keys() - {"__annotations__", "__slotnames__"})  # made if used
            found[name + " is"] = cls.__name__, cls.__module__, cls.__doc__, [base.__name__ for base in cls.__mro__]
            found[name + " type"] = type(cls).__name__, inspect.isabstract(cls), [getattr(base, "__qualname__", str(base)) for base in getattr(cls, "__orig_bases__", ())]
            found[name + " signature"] = tried(inspect.signature, cls)
            found[name + " hints"] = tried(hints, cls)
            found[name + " layout"] = cls.__basicsize__, cls.__dictoffset__ != 0
        found["plain"] = repr(Plain(1)), Plain(2, scale=5).scaled, Plain(1) == Plain(1), Plain.count
        found["fields"] = fields(Plain), fields(Slotted), fields(More)
        found["replace"] = tried(dataclasses.replace, Plain(1), x=2), repr(Slotted().moved()), Slotted(1) < Slotted(2)
        found["frozen"] = tried(setattr, Slotted(), "x", 1), hasattr(Slotted(), "__dict__"), hash(Slotted()) == hash(Slotted())
        found["more"] = More(1, w=2).tell(), tried(setattr, More(1), "w", 5)
        found["registry"] = sorted(REGISTRY), SEEN, Plugin.made("two").run(), REGISTRY["one"] is One
        class Three(Plugin, key="three"): pass
        found["registered later"] = REGISTRY.pop("three") is Three and SEEN.pop(), Three.key
        found["imported hook"] = sorted(shapes.REGISTRY), shapes.REGISTRY["imported"]().area(), shapes.BODIES["imported"]
        found["imported keywords"] = shapes.REGISTRY["given"] is Keyed, Keyed.tone, Keyed.times, shapes.TONES
        found["imported registry"] = shapes.REGISTRY["below"] is Below
        found["set name"] = Holder().one, Holder().two, Named.calls, [name for name in vars(Holder) if name[0] != '_']
        found["meta"] = Read.read, Read.tag, tried(setattr, Read, "a", 3), Read()[0], Read()[1].c(), len(Read), type(Read) is Meta
        class Again(Read, tag="u"): d = 4
        found["meta again"] = Again.read, Again.tag, SEEN.pop()
        found["abstract"] = tried(Shape), sorted(Shape.__abstractmethods__), Square(3).area(), Square(1).twice()
        found["virtual"] = isinstance(Circle(), Shape), issubclass(int, Shape), isinstance(Foreign(), shapes.Shape)
        match Listing(1, 2):
            case [a, b]: matched = a, b
            case _: matched = None
        found["sequence"] = isinstance(Listing(), collections.abc.Sequence), matched
        found["protocol"] = isinstance(Runner(), Runs), isinstance(3, Runs), Runs._is_protocol, Runner._is_protocol, tried(Runs)
        class Like:
            speed = 1
            def run(self): return 1
        found["structural"] = isinstance(Like(), Runs), tried(isinstance, Like(), Walks)
        found["tuples"] = repr(Point(1)), Point(1).norm(), Point._fields, Point._field_defaults, Point(1)._replace(y=0), Old(1).q
        found["pairs"] = Pairs(1, 2).right, str(Pairs[int]), Point(1) == (1, 5), tried(Point)
        found["typed"] = Options(lr=1.0), sorted(Options.__required_keys__), sorted(MoreOptions.__optional_keys__), Options.__total__
        found["generic"] = str(Box[int]), Box[str]("x").item, IntBox(1).item, [str(p) for p in Box.__parameters__], typing.get_args(IntBox.__orig_bases__[0])
        found["recursive"] = Node.build(3).depth(), Leaf().root().depth(), type(Node().leaf()) is Leaf, Leaf().cell() is Leaf
        found["locals"] = [cls().get() for cls in LOCALS], LOCALS[0] is not LOCALS[1]
        Counter().add()
        found["shared variable"] = Counter().total() - counted
        found["slots"] = Struct().hidden(), Struct().shown, tried(setattr, Struct(), "z", 1)
        cached = Cached()
        found["cached"] = cached.value is cached.value, cached.known(), cached.kind(1), cached.kind(""), Cached.get(cached) is cached.value
        Base.flag = True
        found["own attribute"] = Sub.flag
        Base.flag = False
        found["error"] = tried(Error, 3), Error(3).code
        found["main"] = __main__.Plain is Plain, __main__.Read is Read
        return found
"""
SHAPES = """
    import abc
    REGISTRY, BODIES = {}, {}
    class Registered:
        key = None
        def __init_subclass__(cls, **kw):
            super().__init_subclass__(**kw)
            REGISTRY[cls.key] = cls
            BODIES[cls.key] = sorted(name for name in vars(cls) if name[0] != "_")
    TONES = []
    class Keyed:
        def __init_subclass__(cls, *, key, tone="soft", times=1):
            REGISTRY[key] = cls
            TONES.append(tone)
            cls.tone, cls.times = tone, times
    class Shape(abc.ABC):
        pass
"""


def test_classes_of_a_script_are_in_a_job_what_they_are_here(project):
    project.write("shapes.py", SHAPES)
    project.write("run.py", CLASSES + SAME)

    assert project.run("run.py") == "296 facts"


def test_imported_hooks_find_the_whole_body_of_a_class(project):
    project.write(
        "hooks.py",
        """
        import inspect
        SEEN = {}
        def action(name):
            def mark(function):
                function.action = name
                return function
            return mark
        class Column:
            def __init__(self, kind):
                self.kind = kind
            def __set_name__(self, owner, name):
                SEEN[owner.__qualname__, name] = self.kind.__name__
        class Actor:
            def __init_subclass__(cls):
                SEEN[cls.__qualname__] = {
                    "actions": [one.action for one in vars(cls).values() if hasattr(one, "action")],
                    "columns": [name for name, one in vars(cls).items() if isinstance(one, Column)],
                    "plain": cls.__dict__.get("plain"),
                    "nested": [one.__name__ for one in vars(cls).values() if isinstance(one, type)],
                    "signature": str(inspect.signature(cls.run)),
                    "run": cls().run(1),
                }
        class Meta(type):
            def __new__(meta, name, bases, body):
                SEEN[name] = [key for key, one in body.items() if isinstance(one, Column)]
                return super().__new__(meta, name, bases, body)
        """,
    )
    project.write(
        "run.py",
        """
    import dataclasses
    import hooks

    LIMIT = 7
    class Kind: pass
    def outer(step):
        class Robot(hooks.Actor):
            width = hooks.Column(int)
            kind = hooks.Column(Kind)
            class Options:
                x = 1
            @hooks.action("go")
            def run(self, x: int, y: "str" = "y", *, z=(3,)):
                return x + LIMIT + step, y, z
            @hooks.action("stop")
            def stop(self):
                return super().stop(), Robot
        return Robot
    Robot = outer(1)
    @dataclasses.dataclass
    class Plain(hooks.Actor):
        plain: int = 3
        items: list = dataclasses.field(default_factory=list)
        def run(self, x):
            return x, self.plain
    class Table(metaclass=hooks.Meta):
        width = hooks.Column(int)
        def same(self):
            return Table

    def facts():
        return {name: hooks.SEEN.get(name) for name in (
            Robot.__qualname__, Plain.__qualname__, Table.__qualname__,
            ("outer.<locals>.Robot", "kind"), ("Table", "width"),
        )}
    """
        + SAME,
    )

    assert project.run("run.py") == "5 facts"


def test_generic_models_and_validated_functions_are_those_of_the_script(project):
    pytest.importorskip("pydantic")
    project.write(
        "run.py",
        """
    import typing
    import pydantic

    T = typing.TypeVar("T")
    class Box(pydantic.BaseModel, typing.Generic[T]):
        content: T
        more: "list[Box[T]]" = []
    class Item(pydantic.BaseModel):
        box: "typing.Optional[Box[Item]]" = None
    BOX = Box[int](content=3, more=[{"content": 4}])
    ITEM = Item(box={"content": {}})

    @pydantic.validate_call
    def twice(x: int, item: Item = ITEM):
        return 2 * x, item

    def facts():
        return {
            "class": (type(BOX) is Box[int], type(ITEM.box) is Box[Item], isinstance(BOX.more[0], Box[int])),
            "validated": repr((Item(box=ITEM.box), twice("4"))),
        }
    def main():
        return Box[int](content=1), Box[str](content=""), Box[bytes]

    if __name__ == "__main__":
        from shipping import ship
        number, text, kind = ship(main)
        print(type(number) is Box[int], type(text) is Box[str], kind is Box[bytes])
    """
        + SAME,
    )

    assert project.run("run.py") == "True True True\n2 facts"


def test_copyreg_and_pickle_know_classes_of_a_script_in_a_job(project):
    project.write(
        "run.py",
        """
    import copy, copyreg, enum, pickle, threading

    class Locked:
        def __init__(self, n):
            self.n, self.lock = n, threading.Lock()
    def reduced(locked):
        return Locked, (locked.n,)
    copyreg.pickle(Locked, reduced)

    class Outer:
        class Mode(enum.Enum):
            FAST = 1
        class Inner:
            x = 3
    INNER, MODE = Outer.Inner(), Outer.Mode.FAST

    class Model:
        @classmethod
        def names(cls):
            return [one.__name__ for one in cls.__subclasses__()]
    class Small(Model): pass
    class Large(Model): pass
    class Largest(Large): pass

    def facts():
        return {
            "subclasses": (Model.names(), [one.names() for one in Model.__subclasses__()]),
            "copied": copy.copy(Locked(4)).n,
            "nested": (pickle.loads(pickle.dumps(INNER)).x, pickle.loads(pickle.dumps(MODE)) is MODE),
        }
    """
        + SAME,
    )

    assert project.run("run.py") == "3 facts"


def test_caches_and_generic_named_tuples_come_home(project):
    project.write(
        "run.py",
        """
    import functools, typing
    from shipping import ship

    T = typing.TypeVar("T")
    class Pair(typing.NamedTuple, typing.Generic[T]):
        left: T
    @functools.lru_cache
    def known(): return 5
    def main():
        class Local:
            @functools.lru_cache(maxsize=3)
            def double(self, x): return 2 * x
        return Pair[int](1), Local(), known

    if __name__ == "__main__":
        pair, local, same = ship(main)
        print(type(pair) is Pair, local.double(4), type(local).double.cache_parameters()["maxsize"], same is known)
    """,
    )

    assert project.run("run.py") == "True 8 3 True"


def test_a_class_that_equals_another_is_refused_by_name(project):
    project.write(
        "run.py",
        """
        from shipping import ship
        class Equal(type):
            def __eq__(cls, other): return True
            def __hash__(cls): return 1
        class One(metaclass=Equal): pass
        class Two(metaclass=Equal): pass
        def main(): return One is Two
        try:
            print(ship(main))
        except TypeError as error:
            print(error)
        """,
    )

    assert project.run("run.py").startswith(
        "The class Two of __main__ cannot travel: its metaclass"
    )


def test_a_class_whose_statement_passes_something_computed_is_refused_by_name(project):
    project.write("shapes.py", SHAPES)
    project.write(
        "run.py",
        """
        import shapes
        from shipping import ship
        class Keyed(shapes.Keyed, key="a" + str(1)):
            pass
        def main():
            return Keyed()
        try:
            ship(main)
        except TypeError as error:
            print(error)
        """,
    )

    printed = project.run("run.py")

    assert printed.startswith(
        "The class Keyed of __main__ cannot travel: what its statement passes"
    )
    assert printed.endswith(
        "Move the class into a module of the project, and import it from there."
    )


def test_classes_made_in_a_job_come_home_as_they_are(project):
    project.write("shapes.py", SHAPES)
    project.write(
        "run.py",
        """
        import abc, dataclasses, enum, sys, typing
        import msgspec
        import shapes
        from shipping import ship
        class Base:
            seen = []
            def __init_subclass__(cls, **kw):
                Base.seen.append(cls.__name__)
        def main():
            class Below(Base):
                def double(self): return 2 * self.x
                def again(self): return Below
            class Item(msgspec.Struct, frozen=True):
                x: int = 3
                def next(self): return Item(self.x + 1)
            class Planet(enum.Enum):
                EARTH = 1, 2
                def __init__(self, a, b): self.sum = a + b
            @dataclasses.dataclass(slots=True)
            class Data:
                x: int
            class Shape(shapes.Registered):
                key = "home"
            made = Below()
            made.x = 4
            return made, Item(), Planet.EARTH, Data(1), Shape()
        below, item, earth, data, shape = ship(main)
        print(below.double(), type(below).again(below) is type(below), isinstance(below, Base), Base.seen)
        print(item.next(), item.__struct_config__.frozen, earth.sum, type(earth)((1, 2)) is earth)
        print(data, hasattr(data, "__dict__"), dataclasses.fields(data)[0].default is dataclasses.MISSING)
        print(shapes.REGISTRY["home"] is type(shape), shapes.BODIES)
        """,
    )

    assert project.run("run.py").splitlines() == [
        "8 True True []",
        "Item(x=4) True 3 True",
        "main.<locals>.Data(x=1) False True",
        "True {'home': ['key']}",
    ]
