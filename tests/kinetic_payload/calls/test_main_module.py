import sys

import pytest

POOL = """
    import concurrent.futures, dataclasses, enum, multiprocessing, sys
    from shipping import ship
    import helpers

    class Kind(enum.Enum):
        A = 1

    @dataclasses.dataclass
    class Item:
        x: int
        kind: Kind = Kind.A

    FACTOR = 3

    def work(item):
        assert isinstance(item, Item) and item.kind is Kind.A
        return Item(item.x * FACTOR + helpers.ONE)

    def main(method):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            values = pool.map(work, [Item(1), Item(2)])
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            values += list(pool.map(work, [Item(3)]))
            values.append(pool.submit(helpers.doubled, 4).result())
        process = context.Process(target=work, args=(Item(5),))
        process.start()
        process.join()
        assert all(type(value) is Item for value in values[:3])
        return values, process.exitcode

    if __name__ == "__main__":
        import multiprocessing
        values, code = ship(main, sys.argv[1])
        print([getattr(value, "x", value) for value in values], code, type(values[0]) is Item)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_of_a_job_find_the_functions_of_the_users_script(project, method):
    if method == "fork" and sys.platform == "darwin":
        pytest.skip("fork without exec is not safe on macOS")
    project.write("run.py", POOL)
    project.write("helpers.py", "ONE = 1\ndef doubled(x): return 2 * x")

    assert project.run("run.py", method, main="run.py") == "[4, 7, 10, 8] 0 True"


CLASSES_IN_POOLS = """
    import enum, msgspec, multiprocessing, sys, typing
    from shipping import ship

    class Planet(enum.Enum):
        EARTH = 5.9, 6.3
        def __init__(self, mass, radius):
            self.mass = mass
    class Coord(bytes, enum.Enum):
        def __new__(cls, value):
            made = bytes.__new__(cls, [value])
            made._value_, made.label = value, f"label {value}"
            return made
        X = 7
    class Plugin:
        known = []
        def __init_subclass__(cls, *, key):
            cls.key = key
            Plugin.known.append(key)
    class Mine(Plugin, key="mine"):
        def __init__(self, x): self.x = x
    class Meta(type):
        def __new__(meta, name, bases, body):
            return super().__new__(meta, name, bases, {**body, "read": sorted(k for k in body if k[0] != "_")})
    class Read(metaclass=Meta):
        a = 1
    class Point(typing.NamedTuple):
        x: int
    class Struct(msgspec.Struct):
        x: int = 3

    def work(things):
        planet, coord, mine, read, point, struct = things
        assert planet is Planet.EARTH and coord is Coord.X and type(mine) is Mine and type(struct) is Struct
        return things, [planet.mass, coord.label, mine.key, mine.x, read.read, point.x, struct.x, Plugin.known]

    def main(method):
        things = [Planet.EARTH, Coord.X, Mine(1), Read(), Point(2), Struct(4)]
        with multiprocessing.get_context(method).Pool(1) as pool:
            (again, facts), = pool.map(work, [things])
        return again, facts, [type(x) is type(y) for x, y in zip(again, things)], again[0] is things[0]

    if __name__ == "__main__":
        again, facts, *same = ship(main, sys.argv[1])
        print(facts, *same, again[0] is Planet.EARTH, [type(thing) is kind for thing, kind in
              zip(again, (Planet, Coord, Mine, Read, Point, Struct))].count(True))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_of_a_job_find_classes_that_are_more_than_their_bodies(project, method):
    if method == "fork" and sys.platform == "darwin":
        pytest.skip("fork without exec is not safe on macOS")
    project.write("run.py", CLASSES_IN_POOLS)

    assert project.run("run.py", method, main="run.py") == (
        "[5.9, 'label 7', 'mine', 1, ['a'], 2, 4, ['mine']] "
        "[True, True, True, True, True, True] True True 6"
    )


@pytest.mark.parametrize("method", ["spawn"])
def test_process_pools_of_python_m_find_the_functions_of_the_users_module(project, method):
    project.write("pkg/__init__.py", "")
    project.write("pkg/run.py", POOL.replace("import helpers", "from . import helpers"))
    project.write("pkg/helpers.py", "ONE = 1\ndef doubled(x): return 2 * x")

    printed = project.run("-m", "pkg.run", method, main="pkg/run.py", kind="module")

    assert printed == "[4, 7, 10, 8] 0 True"


def test_a_pool_under_fork_works_for_code_that_has_no_file(project):
    code = """
import multiprocessing
from shipping import ship
def work(x):
    return x + 1
def main():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(work, [1, 2])
print(ship(main))
"""
    assert project.run("-c", code, main="", kind="interactive") == "[2, 3]"


def test_what_a_function_of_main_changes_is_seen_by_its_neighbours(project):
    project.write(
        "run.py",
        """
        from shipping import ship
        count = 0
        def step():
            global count
            count += 1
        def read():
            import __main__
            return count, __main__.count, __main__.step is step, __file__ == __main__.__file__
        def main():
            step()
            return read()
        print(*ship(main), count)
        """,
    )

    assert project.run("run.py") == "1 1 True True 0"


def test_the_decorated_name_stays_decorated_in_main(project):
    project.write(
        "run.py",
        """
        import functools
        from shipping import ship
        def deco(function):
            @functools.wraps(function)
            def wrapper(*args):
                return "wrapped", function(*args)
            return wrapper
        @deco
        def main(depth):
            import __main__
            return main(depth - 1) if depth else __main__.main is main
        print(ship(main.__wrapped__, 1))
        """,
    )

    assert project.run("run.py") == "('wrapped', True)"


def test_nothing_of_the_users_script_is_executed_again(project):
    project.write(
        "run.py",
        """
        import os
        from shipping import ship
        with open(os.path.join(os.environ["TEST_WORKSPACE"], "ran"), "a") as file:
            file.write("x")
        def main():
            return __name__
        print(ship(main), open(os.path.join(os.environ["TEST_WORKSPACE"], "ran")).read())
        """,
    )

    assert project.run("run.py") == "__main__ x"
