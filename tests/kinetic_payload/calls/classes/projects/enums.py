import dataclasses
import datetime
import enum


class Planet(enum.Enum):
    EARTH = (5.976e24, 6.37814e6)
    MARS = (6.421e23, 3.3972e6)
    RED = MARS

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius

    @property
    def surface_gravity(self):
        return 6.67300e-11 * self.mass / (self.radius * self.radius)

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

    PX = (0, "P.X", "km")
    PY = (1, "P.Y", "km")


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


ALL = [one for one in globals().values() if type(one) in (enum.EnumMeta, Meta) and one is not Base]


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
        members, name = one.__members__, one.__name__
        shown_attributes = [
            {key: value for key, value in sorted(vars(member).items()) if key[0] != "_"}
            for member in one
        ]
        found[name] = [shown(member) for member in one]
        found[name + " members"] = {key: value.name for key, value in members.items()}
        found[name + " vars"] = sorted(vars(one))
        found[name + " by value"] = all(one(member.value) is member for member in one)
        found[name + " by key"] = all(one[key] is member for key, member in members.items())
        found[name + " attributes"] = shown_attributes
        found[name + " of it"] = all(isinstance(m, one) and m.__objclass__ is one for m in one)
    found["planet"] = Planet.EARTH.mass, Planet.MARS.surface_gravity
    found["method"] = Planet.heaviest() is Planet.EARTH
    found["missing"] = Planet("home") is Planet.EARTH, tried(lambda: Planet("x"))
    found["alias"] = Planet.RED is Planet.MARS, Level.LOWEST is Level.LOW
    found["coord"] = bytes(Coord.PY), Coord.PY.label, Coord(1) is Coord.PY, Coord.PX == b"\0"
    found["flags"] = Flags.A | Flags.B is Flags.BOTH, Flags.B in Flags.BOTH, repr(~Flags.A)
    found["parts"] = [f.name for f in Flags.BOTH], Flags.A.extra
    found["boundaries"] = repr(Kept(16)), tried(lambda: Strict(4)), repr(Kept.LOW | Kept.HIGH)
    found["words"] = Names.first + "x", f"{Names.second}", Names("FIRST!") is Names.first
    found["integer"] = Level.HIGH + 1, Level.HIGH > Level.LOW, sorted(Level)[0].name
    found["mixed in"] = Animal.DOG.legs, Animal.BEETLE.size, repr(Animal.DOG.value)
    found["day"] = Day.EPOCH.year, Day.EPOCH == datetime.date(1970, 1, 1)
    found["deeds"] = Deeds.DOUBLE.value(4), Deeds.HIDDEN, Deeds.DOUBLE.plain()
    found["unhashable"] = Deeds([1, 2]) is Deeds.LISTED
    found["own metaclass"] = Own.first(), Meta.calls, type(Own) is Meta
    found["derived"] = Derived.D.shout()
    return found


def back(member):
    class Made(enum.Enum):
        M = 1, 2

        def __init__(self, x, y):
            self.sum = x + y

    return member, Planet.EARTH, [*Coord], Flags.A | Flags.B, Animal.DOG, Made.M


if __name__ == "__main__":
    import sys

    from shipping import compare, ship

    if sys.argv[1:] == ["home"]:
        mars, earth, coords, both, dog, made = ship(back, Planet.MARS)
        print(
            mars is Planet.MARS, earth is Planet.EARTH, coords == [*Coord] and coords[0] is Coord.PX
        )
        print(both is Flags.BOTH, dog is Animal.DOG, Planet.EARTH.mass, made.sum, made.value)
    else:
        print(compare(facts), "facts")
