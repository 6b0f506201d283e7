"""Functions made inside functions of imported modules: what their globals are where they run."""

from __future__ import annotations

import sys

import pytest


def test_a_value_set_since_the_import_is_the_one_that_the_function_reads(project):
    project.write(
        "near.py",
        "def first(): return 'first'\ndef second(): return 'second'\nclass Net: pass\nclass Wide: pass",
    )
    project.write(
        "lib.py",
        """
        import threading
        from near import first as pick, Net as Kind
        LOCK = threading.Lock()
        RATE, CONFIG, NAMES, CACHE, np, later = 1, {"lr": 1}, {"a", "b", "c"}, {}, None, lambda: "then"
        unset: int
        SENTINEL = object()
        def rate(): return RATE
        def make():
            def inner(x=SENTINEL):
                class Body:
                    seen = RATE
                with LOCK:
                    return (RATE, rate(), CONFIG, sorted(NAMES), len(CACHE), np and np.pi, later(), pick(),
                            Kind.__name__, unset, Body.seen)
            return inner
        """,
    )
    project.write(
        "run.py",
        """
        import lib, near, math
        from shipping import ship
        lib.RATE, lib.np, lib.unset, lib.pick, lib.Kind = 2, math, 7, near.second, near.Wide
        lib.CONFIG["lr"], lib.later = 3, lambda: "now"
        lib.NAMES.add("d")
        lib.CACHE["large"] = bytes(5_000_000)
        there, here = ship(lib.make()), lib.make()()
        assert there == here, there
        print(here[:4])
        """,
    )

    assert project.run("run.py") == "(2, 2, {'lr': 3}, ['a', 'b', 'c', 'd'])"


def test_attributes_of_modules_and_their_classes_have_their_values_at_the_call(project):
    project.write("pack/__init__.py", "")
    project.write(
        "pack/config.py",
        """
        import os, threading
        from shipping import Data
        RATE, NAMES, CLIENT, LOCK, DATA = 1, ["a"], None, threading.Lock(), Data("digits")
        class Base: depth = 1
        class Settings(Base):
            lr, table = 1, {}
            made = dict(a=1)
            folder = os.environ.get("NO_SUCH_NAME", "data")
            def method(self): return self.lr
        def rate(): return RATE
        """,
    )
    project.write(
        "lib.py",
        """
        import pack.config as config, pack
        def make():
            def inner(): return config.RATE, pack.config.NAMES, config.Settings.lr
            return inner
        """,
    )
    project.write(
        "run.py",
        """
        import pack.config, pack.config as config, lib, threading
        from pack.config import Settings
        from shipping import dump, ship
        config.RATE, config.Settings.lr, Settings.depth, config.CLIENT = 2, 3, 4, threading.Lock()
        config.NAMES.append("b"), Settings.made.update(b=2)
        config.Base.later, Settings.folder = 5, "mine"
        def outer(module):
            return lambda: module.RATE
        def count():
            config.RATE += 1
            return config.rate()
        exec("def many():" + "".join(f"\\n if 0: n{i}.a{i}" for i in range(300)) + "\\n return config.RATE")
        def read():
            if not hasattr(config.CLIENT, "name"):
                config.CLIENT = "made there"
            with config.LOCK:
                return (config.RATE, pack.config.NAMES, config.rate(), Settings.lr, Settings().method(),
                        Settings.made, Settings.depth, config.Base.later, Settings.folder, config.CLIENT)
        for function in read, lib.make(), outer(config), count, many:
            print(ship(function))
        print(len(dump(lambda: config.DATA).data))
        """,
    )

    assert project.run("run.py").splitlines() == [
        "(2, ['a', 'b'], 2, 3, 3, {'a': 1, 'b': 2}, 4, 5, 'mine', 'made there')",
        "(2, ['a', 'b'], 3)",
        "2",
        "3",
        "2",
        "1",
    ]


def test_equal_values_of_the_import_stay_the_object_that_all_share(project):
    project.write("other.py", "from lib import REGISTRY, NAMES, FIRST, MANY, Own, OWN, LOCKED")
    project.write(
        "lib.py",
        """
        import threading, os
        class Own:
            def __init__(self): self.names = {"a", "b", "c", os.sep}
        REGISTRY, NAMES, FIRST, OWN = {"f": lambda x: x}, {"a", "b", "c"}, object(), Own()
        MANY = {str(i): {str(j) for j in range(5)} for i in range(40_000)}
        LOCKED = [threading.Lock(), {"x": 1}]
        import other
        def make():
            def inner():
                return [REGISTRY is other.REGISTRY, NAMES is other.NAMES, FIRST is other.FIRST,
                        MANY is other.MANY, OWN is other.OWN, LOCKED is other.LOCKED]
            return inner
        """,
    )
    project.write(
        "run.py",
        """
        import lib
        from shipping import dump, ship
        print(all(ship(lib.make())), dump(lib.make()).size)
        """,
    )

    same, size = project.run("run.py").split()

    assert same == "True"
    assert int(size) < 10_000


FAILING = """
import threading
from shipping import Data, ship
import lib
{change}
try:
    print(ship(lib.make()))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("lib.CLIENT = threading.Lock()", "'CLIENT' of the module 'lib', which was a _thread.lock"),
        (
            "lib.MADE = threading.Lock()",
            "'MADE' of the module 'lib', which was a _thread.lock at the",
        ),
        ("lib.TABLE = bytes(3_000_000) + b'x'", "is large (3.0 MB pickled)"),
        ("lib.PARTS['n'] = 2", "'PARTS' of the module 'lib', which was a dict of 2 at the call"),
    ],
)
def test_a_global_that_cannot_be_pickled_is_an_error_and_never_the_initial_value(
    project, change, told
):
    project.write(
        "lib.py",
        """
        import threading
        CLIENT, MADE, TABLE = None, int("5"), bytes(3_000_000)
        PARTS = {"lock": threading.Lock(), "n": 1}
        def make():
            def inner():
                return CLIENT, MADE, len(TABLE), PARTS["n"]
            return inner
        """,
    )
    project.write("run.py", FAILING.format(change=change))

    printed = project.run("run.py")

    assert told in printed
    assert "Pass it as an argument" in printed


def test_globals_that_the_code_assigns_or_of_equal_type_need_not_travel(project):
    project.write(
        "lib.py",
        """
        import threading, logging
        CLIENT, LOCK, LOG = None, threading.Lock(), logging.getLogger("lib")
        def make():
            def inner():
                global CLIENT
                with LOCK:
                    if CLIENT is None:
                        CLIENT = "made there"
                    return CLIENT, LOG.name
            return inner
        """,
    )
    project.write(
        "run.py",
        """
        import lib, threading
        from shipping import ship
        lib.CLIENT = threading.Lock()
        print(ship(lib.make()))
        """,
    )

    assert project.run("run.py") == "('made there', 'lib')"


def test_an_attribute_made_on_first_access_may_be_unpicklable(project):
    project.write(
        "lib.py",
        """
        import threading
        def __getattr__(name):
            if name != "CLIENT":
                raise AttributeError(name)
            return globals().setdefault(name, threading.Lock())
        """,
    )
    project.write(
        "run.py",
        """
        import lib
        from shipping import ship
        lib.CLIENT
        print(ship(lambda: lib.CLIENT.locked()))
        """,
    )

    assert project.run("run.py") == "False"


def test_values_that_an_import_computes_from_the_machine_are_the_workers(project):
    project.write(
        "settings.py",
        "import os, sys\nfrom pathlib import Path\nROOT = Path(__file__).parent\nARGS = sys.argv[1:]",
    )
    project.write(
        "lib.py",
        """
        import os, uuid
        from settings import ROOT, ARGS
        PID, DATA, RUN, FLAG, SET = os.getpid(), ROOT / "data", uuid.uuid4(), os.sep, os.getpid()
        def change():
            global SET
            SET = 0
        def make():
            return lambda: (PID, DATA, ROOT, ARGS, RUN, SET)
        """,
    )
    project.write(
        "run.py",
        """
        import lib
        from shipping import WORKSPACE, ship
        lib.change()
        pid, data, root, *travelled = ship(lib.make())
        assert pid != lib.PID and root == WORKSPACE / "project" and data == root / "data"
        assert travelled == [["x"], lib.RUN, 0], travelled
        print("so it is")
        """,
    )

    assert project.run("run.py", "x") == "so it is"


def test_data_in_a_global_of_an_imported_module_travels_with_a_nested_function(project):
    project.write(
        "lib.py",
        """
        from shipping import Data
        DIGITS = Data("digits")
        def make():
            return lambda: DIGITS
        """,
    )
    project.write(
        "run.py",
        """
        import lib
        from shipping import dump, ship
        print(ship(lib.make()), len(dump(lib.make()).data))
        """,
    )

    assert project.run("run.py") == "/data/d0 1"


def test_differing_attributes_and_missing_modules_are_warnings() -> None:
    import types

    from kinetic_payload.calls.module_globals.restore import Global, restore

    module = sys.modules["made_for_a_test"] = types.ModuleType("made_for_a_test")
    try:
        module.OWN = own = types.SimpleNamespace(rate=1, same=1)  # type: ignore[attr-defined]
        module.torch = None  # type: ignore[attr-defined]
        mark = "type types.SimpleNamespace"
        own.lock = lambda: None
        own.lock.lock = open
        missing = b"cno_such_module_of_anyone\nthing\n."
        found = [
            Global(
                module.__name__, "OWN", "an Own", mark, None, "cannot be pickled", (("rate", "?"),)
            ),
            Global(module.__name__, "torch", "the module torch", "module torch", missing),
        ]

        warnings = restore(found, "")

        assert "attributes that differ from the call's: rate" in warnings[0]
        assert "torch was the module torch at the call, and is None here" in warnings[1]
        with pytest.raises(ModuleNotFoundError):
            restore([found[1]._replace(name="unset")], "")
    finally:
        del sys.modules["made_for_a_test"]


ASSERTING = """
    import sys
    if {hidden} and "worker" in sys.argv[0]:
        sys.modules["_pytest"] = None
    WORDS = ["a"]
    def numbers(): return [1, 2]
    def make():
        def inner(x):
            assert x == 1 and WORDS, "more words"
            assert numbers() == [1, x]
        return inner
"""


@pytest.mark.parametrize("hidden", [False, True], ids=["pytest", "no pytest"])
def test_an_assert_that_pytest_rewrote_fails_there_as_an_assertion(
    project, hidden, monkeypatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # They are for the pytest that runs this.
    project.write("asserting.py", ASSERTING.format(hidden=hidden))
    project.write(
        "test_it.py",
        """
        import pytest
        pytest.register_assert_rewrite("asserting")
        import asserting
        from shipping import ship

        def test_it():
            assert "@pytest_ar" in vars(asserting)
            for x in (3, 1):
                with pytest.raises(AssertionError) as caught:
                    ship(asserting.make(), x)
                print(caught.value)
        """,
    )

    command = ("-m", "pytest", "-sq", "-p", "no:cacheprovider", "test_it.py")
    first, second, *more = project.run(*command, main="").splitlines()

    assert first == "more words"
    if hidden:
        assert (second, more[:2]) == (
            "assert (3 == 1)",
            ["assert [1, 2] == [1, 1]", "  where [1, 2] = numbers()"],
        )
    else:
        assert second == "assert (3 == 1)"
        assert "where [1, 2] = numbers()" in "".join(more)
    assert "1 passed" in more[-1]
