"""`Data` wherever pickle meets it, found by pickle's own hooks and loaded in another process."""

import sys
from importlib.util import find_spec

import pytest


def test_data_is_found_wherever_pickle_reaches_it(project):
    project.write(
        "types_of.py",
        """
        import collections, dataclasses, functools
        @dataclasses.dataclass
        class Config:
            data: object
        class Slotted:
            __slots__ = ("data",)
        class Keeping:
            def __init__(self, data):
                self.data = data
            def method(self):
                return self.data
            def __reduce__(self):
                return Keeping, (self.data,)
        class Nesting:
            def __init__(self, data):
                self.data = data
            def __reduce__(self):
                import pickle
                return rebuilt, (pickle.dumps({"x": [self.data]}),)
        class Stateful:
            def __init__(self, data):
                self.data = data
            def __getstate__(self):
                import copy
                return copy.deepcopy(self.__dict__)
        def rebuilt(blob):
            import pickle
            return Nesting(pickle.loads(blob)["x"][0])
        def use(data=None):
            return data
        """,
    )
    project.write(
        "run.py",
        """
        import collections, functools
        from shipping import Data, dump, ship
        import types_of as t

        class Sub(Data):
            pass

        GLOBAL = Data("global")

        def everything():
            made = [Data(f"{index}") for index in range(16)]
            closed, default, bound = Data("closure"), Data("default"), Data("bound")
            def closure(x=default):
                return closed, x, GLOBAL
            slotted = t.Slotted()
            slotted.data = made[0]
            def attributed():
                return attributed.data
            attributed.data = made[14]
            return closure, attributed, {
                "nested": [{"a": (made[2],)}], "key": {made[3]: 1}, "set": {made[4]},
                "dataclass": t.Config(made[5]), "slots": slotted, "attribute": t.Keeping(made[6]),
                "partial": functools.partial(t.use, made[7]), "keyword":
                functools.partial(t.use, data=made[8]), "deque": collections.deque([made[9]]),
                "bound": t.Keeping(bound).method, "list": [made[1]], "error": ValueError(made[10]),
                "dumps": t.Nesting(made[11]), "state": t.Stateful(made[12]), "sub": Sub("sub"),
                "frozen": frozenset([made[13]]), "default": collections.defaultdict(list, a=[made[15]]),
            }

        def main(closure, attributed, x):
            found = [
                x["nested"][0]["a"][0], *x["key"], *x["set"], x["dataclass"].data, x["slots"].data,
                x["attribute"].data, x["partial"](), x["keyword"](), x["deque"][0], x["bound"](),
                x["list"][0], x["error"].args[0], x["dumps"].data, x["state"].data, x["sub"],
                *x["frozen"], *closure(), attributed(), x["default"]["a"][0],
            ]
            assert all(isinstance(path, str) for path in found), found
            return sorted(found)

        call = everything()
        dumped = dump(main, *call)
        paths = ship(main, *call)
        keys = sorted("/data/" + found.key for found in dumped.data)
        print(paths == keys, len(set(paths)), sorted(f.value.path for f in dumped.data)[-6:])
        """,
    )

    assert project.run("run.py") == (
        "True 21 ['9', 'bound', 'closure', 'default', 'global', 'sub']"
    )


def test_data_is_found_in_an_array_of_objects(project):
    pytest.importorskip("numpy")
    project.write(
        "run.py",
        """
        import numpy
        from shipping import Data, ship
        array = numpy.empty(1, dtype=object)
        array[0] = Data("in an array")
        print(ship(lambda array: array[0], array))
        """,
    )

    assert project.run("run.py") == "/data/d0"


def test_shared_data_stays_shared_and_volumes_have_their_mounts(project):
    project.write(
        "run.py",
        """
        from shipping import Data, dump, ship
        one, other = Data("one"), Data("other")
        def main(a, b, c):
            return a is b["x"], a == c, one, a
        dumped = dump(main, one, {"x": one}, other, volumes={"/data": one})
        print([(found.key, found.value.path, found.mount) for found in dumped.data])
        print(*ship(main, one, {"x": one}, other))
        """,
    )

    assert project.run("run.py") == (
        "[('d0', 'one', '/data'), ('d1', 'one', None), ('d2', 'other', None)]\n"
        "True False /data/d0 /data/d0"
    )


def test_module_level_data_can_be_passed_and_is_not_found_by_itself(project):
    project.write(
        "train.py",
        """
        from shipping import Data
        DIGITS = Data("digits")
        def main(path=None):
            return path, type(DIGITS).__name__
        """,
    )
    project.write(
        "run.py",
        """
        import train
        from shipping import dump, ship
        print(ship(train.main, train.DIGITS), len(dump(train.main).data))
        """,
    )

    assert project.run("run.py") == "('/data/d0', 'Data') 0"


@pytest.mark.timeout(400)  # Four processes import JAX.
@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_jitted_functions_of_a_script_and_of_a_module_travel(project):
    module = """
        import functools, jax
        @jax.jit
        def step(x):
            return x + 1
        @functools.partial(jax.jit, static_argnames="n")
        def power(x, n):
            return x ** n
        def main(x):
            return float(power(step(x), n=2))
    """
    project.write("train.py", module)
    project.write(
        "run.py",
        module
        + """
        if __name__ == "__main__":
            from shipping import dump, ship
            import train
            import numpy
            print(ship(main, 2.0), ship(train.main, 2.0), ship(train.step, jax.numpy.ones(())))
            print(dump(train.step).size < 120)
    """,
    )

    assert project.run("run.py") == "9.0 9.0 2.0\nTrue"


def test_pythons_own_odd_types_travel_from_a_script(project):
    project.write(
        "run.py",
        """
        import abc, contextlib, dataclasses, enum, functools, logging, typing
        from shipping import ship
        log = logging.getLogger("mine")
        class Base(abc.ABC):
            @abc.abstractmethod
            def f(self): ...
            @property
            def p(self):
                return super().__repr__()[:1]
            @staticmethod
            def s(): return "s"
            @classmethod
            def c(cls): return cls.__name__
        class Child(Base):
            def f(self): return super().p, self.s(), self.c(), __class__ is Child
        class Flags(enum.Flag):
            A = enum.auto()
            B = enum.auto()
        @contextlib.contextmanager
        def context(x):
            yield x
        @functools.singledispatch
        def single(x): return "any"
        @single.register
        def _(x: int): return "int"
        class Box(typing.Generic[typing.TypeVar("T")]):
            def __init__(self, x): self.x = x
        class Typed(typing.TypedDict):
            x: int
        def main(child, flags):
            log.warning("from the job")
            with context(1) as x:
                pass
            return child.f(), flags, x, Box[int](3).x, Typed(x=1), single(1), single("")
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        if __name__ == "__main__":
            value = ship(main, Child(), Flags.A | Flags.B)
            print(value, value[1] is Flags.A | Flags.B)
            print(ship(even, 10), ship(Child.c), ship(Child().f))
        """,
    )

    assert project.run("run.py").splitlines()[1:] == [
        "(('<', 's', 'Child', True), <Flags.A|B: 3>, 1, 3, {'x': 1}, 'int', 'any') True",
        "True Child ('<', 's', 'Child', True)",
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with Python 3.12")
def test_type_parameters_and_aliases_of_a_script_travel(project):
    project.write(
        "run.py",
        """
        from kinetic_payload.errors import PayloadError
        from shipping import ship
        type Pair = tuple[int, int]
        type Json = dict[str, Json] | list[Json] | None
        type Tree[T] = T | list[Tree[T]]
        class Box[T]:
            def __init__(self, x: T):
                self.x = x
            def get(self) -> T:
                return self.x
        def first[T](x: list[T]) -> T:
            return x[0]
        def main(box: Box[int], pair: Pair):
            return first([box.get()]), pair, Box[int](2)
        def json(x: Json) -> Json:
            return Json.__value__.__args__[0].__args__[1] is Json, Json.__module__, repr(Json)
        def tree(x: Tree[int]): pass
        if __name__ == "__main__":
            value = ship(main, Box(1), (1, 2))
            print(value[:2], type(value[2]) is Box)
            print(ship(json, None))
            try:
                ship(tree, 1)
            except PayloadError as error:
                print(error.message)
        """,
    )

    assert project.run("run.py").splitlines() == [
        "(1, (1, 2)) True",
        "(True, '__main__', 'Json')",
        "The type alias Tree of __main__ cannot travel: it has type parameters, and its value names "
        "itself.",
    ]


def test_an_exception_with_an_init_of_its_own_is_whole_as_argument_value_and_error(project):
    project.write(
        "run.py",
        """
        from shipping import ship

        class Needs(Exception):
            def __init__(self, code, *, why):
                super().__init__(f"{code} because {why}")
                self.code = code
        class Missing(OSError):
            def __init__(self, path): super().__init__(2, "no such run", path)
        class Twice(Exception):
            def __init__(self, what): super().__init__(f"failed: {what}")
        class Slotted(ValueError, KeyError):
            __slots__ = ("unit",)
            def __init__(self, unit): super().__init__(); self.unit = unit
        class Hinted(Exception):
            __slots__ = ("hint", "unset")
            def __init__(self, code, hint=None): super().__init__(code); self.hint = hint
        class Restored(Exception):
            def __init__(self, code, why): super().__init__(f"{code} because {why}"); self.why = why
            def __setstate__(self, state): super().__setstate__(state | {"why": self.args[0][-1]})
        class Both(ExceptionGroup):
            def __new__(cls, code, errors): return super().__new__(cls, f"code {code}", errors)
            def __init__(self, code, errors): self.code = code

        def fail(error): raise error
        made = [Needs(3, why="w"), Missing("/x"), Twice("disk"), Slotted("s"), Both(4, [Needs(5, why="v")])]
        made += [Hinted(6), Restored(7, "r")]
        back = ship(lambda: list(made))
        for error, value in zip(made, back):
            try:
                ship(fail, error)
            except type(error) as raised:
                for one in (value, raised):
                    assert (type(one), str(one)) == (type(error), str(error)), one
                    assert repr((one.args, vars(one))) == repr((error.args, vars(error))), one
        print(back[0].code, back[1].filename, back[3].unit, back[4].exceptions[0].code)
        print(back[5].hint, hasattr(back[5], "unset"))
        """,
    )

    assert project.run("run.py") == "3 /x s 5\nNone False"


def test_a_method_of_a_builtin_type_travels(project):
    project.write(
        "run.py", "from shipping import ship\nprint(ship(str.upper, 'a'), ship([3, 1].index, 1))"
    )

    assert project.run("run.py") == "A 1"
