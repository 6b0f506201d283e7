"""Functions made inside functions of imported modules: what their globals are where they run."""

from __future__ import annotations

import sys
import types

import pytest

from kinetic_payload.calls.module_globals.restore import OF_MACHINE, Global, Restorer


def test_a_value_set_since_the_import_is_the_one_that_the_function_reads(project):
    project.write_all("""
        # near.py
        def first(): return 'first'
        def second(): return 'second'
        class Net: pass
        class Wide: pass
        # lib.py
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
    """)
    project.write_all("""
        # run.py
        import lib, near, math
        from shipping import ship
        lib.RATE, lib.np, lib.unset, lib.pick, lib.Kind = 2, math, 7, near.second, near.Wide
        lib.CONFIG["lr"], lib.later = 3, lambda: "now"
        lib.NAMES.add("d")
        lib.CACHE["large"] = bytes(5_000_000)
        there, here = ship(lib.make()), lib.make()()
        assert there == here, there
        print(here[:4])
    """)

    assert project.run("run.py") == "(2, 2, {'lr': 3}, ['a', 'b', 'c', 'd'])"


def test_attributes_of_modules_and_their_classes_have_their_values_at_the_call(project):
    project.write("pack/__init__.py", "")
    project.write_all("""
        # pack/config.py
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
        # lib.py
        import pack.config as config, pack
        def make():
            def inner(): return config.RATE, pack.config.NAMES, config.Settings.lr, config.DATA
            return inner
    """)
    project.write_all("""
        # run.py
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
        print(len(dump(lib.make()).data))
    """)

    assert project.run("run.py").splitlines() == [
        "(2, ['a', 'b'], 2, 3, 3, {'a': 1, 'b': 2}, 4, 5, 'data', 'made there')",
        "(2, ['a', 'b'], 3, '/data/d0')",
        "2",
        "3",
        "2",
        "1",
    ]


def test_values_equal_to_those_of_the_import_are_not_replaced(project):
    project.write_all("""
        # other.py
        from lib import REGISTRY, NAMES, FIRST, MANY, Own, OWN, LOCKED
        # lib.py
        import threading, os
        class Own:
            def __init__(self): self.names = {"a", "b", "c", os.sep}
        REGISTRY, NAMES, FIRST, OWN = {"f": lambda x: x}, {"a", "b", "c"}, object(), Own()
        MANY = {i: {str(j) * 60_000 for j in range(5)} for i in range(4)}
        LOCKED = [threading.Lock(), {"x": 1}]
        import other
        def make():
            def inner():
                return [REGISTRY is other.REGISTRY, NAMES is other.NAMES, FIRST is other.FIRST,
                        MANY is other.MANY, OWN is other.OWN, LOCKED is other.LOCKED]
            return inner
        # run.py
        import lib
        from shipping import dump, ship
        print(all(ship(lib.make())), dump(lib.make()).size)
    """)

    same, size = project.run("run.py").split()

    assert same == "True"
    assert int(size) < 10_000


def test_a_global_that_cannot_be_pickled_is_an_error_and_never_the_initial_value(project):
    project.write_all("""
        # lib.py
        import threading
        CLIENT, MADE, TABLE = None, int("5"), bytes(3_000_000)
        PARTS = {"lock": threading.Lock(), "n": 1}
        def make():
            def inner():
                return CLIENT, MADE, len(TABLE), PARTS["n"]
            return inner
        # run.py
        import threading
        from shipping import ship
        import lib
        lock = threading.Lock()
        changes = {"CLIENT": lock, "MADE": lock, "TABLE": bytes(3_000_000) + b"x", "PARTS": {**lib.PARTS, "n": 2}}
        for name, value in changes.items():
            own, lib.__dict__[name] = lib.__dict__[name], value
            try:
                print("value:", ship(lib.make()))
            except Exception as error:
                print(error)
            lib.__dict__[name] = own
    """)

    printed = project.run("run.py")

    for expected in (
        "'CLIENT' of the module 'lib', which was a _thread.lock at the call",
        "'MADE' of the module 'lib', which was a _thread.lock at the call",
        "is large (3.0 MB pickled)",
        "'PARTS' of the module 'lib', which was a dict of 2 at the call",
    ):
        assert expected in printed
    assert printed.count("Pass it as an argument") == 4
    assert "value:" not in printed


def test_unpicklable_globals_need_not_travel_if_the_job_makes_them(project):
    # The code assigns the first one, the import makes the next two, and the first access the last one.
    project.write_all("""
        # lib.py
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
        def __getattr__(name):
            if name != "LATE":
                raise AttributeError(name)
            return globals().setdefault(name, threading.Lock())
        # run.py
        import lib, threading
        from shipping import ship
        lib.CLIENT = threading.Lock()
        lib.LATE
        print(ship(lib.make()), ship(lambda: lib.LATE.locked()))
    """)

    assert project.run("run.py") == "('made there', 'lib') False"


def test_values_that_an_import_computes_from_the_machine_are_those_of_the_job(project):
    project.write_all("""
        # settings.py
        import os, sys
        from pathlib import Path
        ROOT = Path(__file__).parent
        ARGS = sys.argv[1:]
        # lib.py
        import os, uuid
        from settings import ROOT, ARGS
        PID, DATA, RUN, FLAG, SET = os.getpid(), ROOT / "data", uuid.uuid4(), os.sep, os.getpid()
        def change():
            global SET
            SET = 0
        def make():
            return lambda: (PID, DATA, ROOT, ARGS, RUN, SET)
        # run.py
        import lib
        from shipping import WORKSPACE, ship
        lib.change()
        pid, data, root, *travelled = ship(lib.make())
        assert pid != lib.PID and root == WORKSPACE / "project" and data == root / "data"
        assert travelled == [["x"], lib.RUN, 0], travelled
        print((WORKSPACE / "warnings.txt").read_text())
    """)

    # A path in the project is the same there.
    assert project.run("run.py", "x").splitlines() == [
        "lib.PID is computed from the machine where the module is imported: the job has its own value, which "
        "differs from that at the call."
    ]


def test_differing_attributes_and_missing_modules_are_warnings() -> None:
    module = sys.modules["made_for_a_test"] = types.ModuleType("made_for_a_test")
    try:
        module.OWN = own = types.SimpleNamespace(rate=1, same=1)  # type: ignore[attr-defined]
        module.torch, module.PID = None, 5  # type: ignore[attr-defined]
        mark = "type types.SimpleNamespace"
        own.lock = lambda: None
        own.lock.lock = open
        missing = b"cno_such_module_of_anyone\nthing\n."
        found = [
            Global(
                module.__name__, "OWN", "an Own", mark, None, "cannot be pickled", (("rate", "?"),)
            ),
            Global(module.__name__, "torch", "the module torch", "module torch", missing),
            Global(module.__name__, "PID", "4", "pickle 4", None, OF_MACHINE),
        ]

        restorer = Restorer("")
        restorer.restore(found)
        warnings = restorer.warnings

        assert "attributes that differ from the call's: rate" in warnings[0]
        assert "torch was the module torch at the call, and is None here" in warnings[1]
        assert "PID is computed from the machine" in warnings[2]
        with pytest.raises(ModuleNotFoundError):
            restorer.restore([found[1]._replace(name="unset")])
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


def test_an_assert_that_pytest_rewrote_fails_there_with_or_without_pytest(
    project, monkeypatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # They are for the pytest that runs this.
    project.write("asserting.py", ASSERTING.format(hidden=False))
    project.write("hidden.py", ASSERTING.format(hidden=True))
    project.write_all("""
        # test_it.py
        import pytest
        pytest.register_assert_rewrite("asserting", "hidden")
        import asserting, hidden
        from shipping import ship

        def test_it():
            assert "@pytest_ar" in vars(asserting)
            for module in (asserting, hidden):
                for x in (3, 1):
                    with pytest.raises(AssertionError) as caught:
                        ship(module.make(), x)
                    print("|", "/".join(str(caught.value).splitlines()))
    """)

    command = ("-m", "pytest", "-sq", "-p", "no:cacheprovider", "test_it.py")
    *lines, last = project.run(*command, main="").splitlines()

    first, second, third, fourth = (line for line in lines if line.startswith("|"))
    assert first == "| more words/assert (3 == 1)"
    assert third.startswith("| more words/")
    assert "where [1, 2] = numbers()" in second
    assert fourth.startswith("| assert [1, 2]")
    assert "1 passed" in last
