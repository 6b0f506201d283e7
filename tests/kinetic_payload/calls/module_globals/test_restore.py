"""Functions made inside functions of imported modules: what their globals are where they run."""

from __future__ import annotations

from types import ModuleType

import pytest

from kinetic_payload.calls.module_globals.initial_values import Kind, initial_of


def test_attributes_of_modules_and_their_classes_have_their_values_at_the_call(project):
    project.write("pack/__init__.py", "")
    project.write_all("""
        # pack/config.py
        import os, threading
        from shipping import Data
        RATE, NAMES, CLIENT, LOCK, DATA = 1, ["a"], None, threading.Lock(), Data("digits")
        unset: int
        class Base: depth = 1
        class Settings(Base):
            lr, table = 1, {}
            made = dict(a=1)
            folder = os.environ.get("NO_SUCH_NAME", "data")
        def rate(): return RATE
        # lib.py
        import pack.config as config, pack
        np, SENTINEL = None, object()
        def make():
            def inner(x=SENTINEL):
                class Body: seen = np.pi > 3
                return config.RATE, pack.config.NAMES, config.Settings.lr, config.DATA, Body.seen, config.unset
            return inner
    """)
    project.write_all("""
        # run.py
        import math, threading
        import pack.config, pack.config as config, lib
        from pack.config import Settings
        from shipping import dump, ship
        config.RATE, config.Settings.lr, Settings.depth, config.CLIENT = 2, 3, 4, threading.Lock()
        config.NAMES.append("b"), Settings.made.update(b=2)
        config.Base.later, Settings.folder, lib.np, config.unset = 5, "mine", math, 7
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
                return Settings.made, Settings.depth, config.Base.later, Settings.folder, config.CLIENT
        for function in read, lib.make(), outer(config), count, many:
            print(ship(function))
        print(len(dump(lib.make()).data))
    """)

    assert project.run("run.py").splitlines() == [
        "({'a': 1, 'b': 2}, 4, 5, 'data', 'made there')",
        "(2, ['a', 'b'], 3, '/data/d0', True, 7)",
        "2",
        "3",
        "2",
        "1",
    ]


def test_values_equal_to_those_of_the_import_are_not_replaced(project):
    project.write_all("""
        # other.py
        from lib import NAMES, OWN, LOCKED
        # lib.py
        import threading, os
        class Own:
            def __init__(self): self.names = {"a", "b", "c", os.sep}
        NAMES, OWN, LOCKED = {"a", "b", "c"}, Own(), [threading.Lock(), {"x": 1}]
        import other
        def make():
            def inner(): return NAMES is other.NAMES, OWN is other.OWN, LOCKED is other.LOCKED
            return inner
        # run.py
        import lib
        from shipping import ship
        print(ship(lib.make()))
    """)

    assert project.run("run.py") == "(True, True, True)"


def test_a_global_that_cannot_travel_is_an_error_or_a_warning_and_never_the_initial_value(project):
    project.write_all("""
        # lib.py
        import threading
        CLIENT, MADE, TABLE = None, int("5"), bytes(3_000_000)
        PARTS, CACHE = {"lock": threading.Lock(), "n": 1}, {}
        def use(): return CLIENT, len(CACHE)
        def make():
            CACHE["large"] = bytes(5_000_000)
            def inner():
                return CLIENT, MADE, len(TABLE), PARTS["n"]
            return inner
        # optional.py
        import os
        if "workspace" in os.path.abspath(__file__): raise RuntimeError("no display")
        shown = None
    """)
    project.write_all("""
        # run.py
        import threading
        from shipping import dump, ship
        import lib, optional
        lock = threading.Lock()
        changes = {"CLIENT": lock, "MADE": lock, "TABLE": bytes(3_000_000) + b"x", "PARTS": {**lib.PARTS, "n": 2}}
        for name, value in changes.items():
            own = getattr(lib, name)
            setattr(lib, name, value)
            try:
                print("value:", ship(lib.make()))
            except Exception as error:
                print("error:", error)
            setattr(lib, name, own)
        lib.CLIENT = lock
        print(*sorted(dump(lib.use).warnings), sep="\\n")
        class Model: size = 3
        lib.CLIENT, model = 5, Model()
        optional.shown = model
        print(ship(lib.use), ship(lambda: model.size))
    """)

    *errors, large, unpicklable, values = project.run("run.py").splitlines()

    printed = "\n".join(errors)
    for expected in (
        "'CLIENT' of the module 'lib', which was a _thread.lock at the call",
        "'MADE' of the module 'lib', which was a _thread.lock at the call",
        "is large (3.0 MB pickled)",
        "'PARTS' of the module 'lib', which was a dict of 2 at the call",
    ):
        assert expected in printed
    assert printed.count("error:") == printed.count("Pass it as an argument") == 4
    assert large.startswith("lib.CACHE was set since the import")
    assert "is larger than 1 MB" in large
    assert unpicklable.startswith("lib.CLIENT was set since the import")
    assert "cannot be pickled" in unpicklable
    # A module that the job cannot import is not read there.
    assert values == "(5, 0) 3"


def test_unpicklable_globals_need_not_travel_if_the_job_makes_them(project):
    # The code assigns the first one, the import makes the next ones, and the first access the last one.
    project.write_all("""
        # lib.py
        import threading, logging, sys
        if "worker" in sys.argv[0]: sys.modules["colorsys"] = None
        try: import colorsys as extra
        except ImportError: extra = None
        class Own:
            def __init__(self): self.rate, self.lock = 1, threading.Lock()
        CLIENT, LOCK, LOG, OWN = None, threading.Lock(), logging.getLogger("lib"), Own()
        def make():
            def inner():
                global CLIENT
                with LOCK:
                    if CLIENT is None:
                        CLIENT = "made there"
                    return CLIENT, LOG.name, OWN.rate, extra
            return inner
        def __getattr__(name):
            if name != "LATE":
                raise AttributeError(name)
            return globals().setdefault(name, threading.Lock())
        # run.py
        import lib, threading
        from shipping import WORKSPACE, ship
        lib.CLIENT = threading.Lock()
        vars(lib.OWN)["rate"] = 2
        lib.LATE
        print(ship(lib.make()), (WORKSPACE / "warnings.txt").read_text(), sep="\\n")
        print(ship(lambda: lib.LATE.locked()))
    """)

    value, *warnings, late = project.run("run.py").splitlines()

    assert (value, late) == ("('made there', 'lib', 1, None)", "False")
    assert any("attributes that differ from the call's: rate" in text for text in warnings)
    assert any("was the module colorsys at the call, and is None here" in t for t in warnings)


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


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def f():\n x = 1", Kind.NOTHING),
        ("x: dict = {}", Kind.LITERAL),
        ("(y, x) = 1, 2", Kind.LITERAL),
        ("y, (x, *z) = 1, (2, 3)", Kind.UNKNOWN),
        ("x = 1\nx = 2", Kind.UNKNOWN),
        ("for x in [1]: pass", Kind.UNKNOWN),
        ("from json import *\ny = 1", Kind.UNKNOWN),
        ("try:\n from .y import x\nexcept ImportError:\n x = 1", Kind.UNKNOWN),
        ("from os import getpid as pid\nx = pid()", Kind.MACHINE),
        ("from pathlib import Path\nx = Path.home()", Kind.MACHINE),
        ("from site import PREFIXES as x", Kind.MACHINE),
        ("class jax:\n device_count = int\nx = jax.device_count()", Kind.MACHINE),
    ],
)
def test_the_source_tells_what_an_import_gives_a_global(tmp_path, text: str, kind: Kind) -> None:
    module = ModuleType("made")
    module.__file__ = str(tmp_path / "made.py")
    (tmp_path / "made.py").write_text(text)
    exec(text, vars(module))

    assert initial_of(module, "x").kind is kind


ASSERTING = """
    import sys
    if __name__ == "hidden" and "worker" in sys.argv[0]:
        sys.modules["_pytest"] = None
    WORDS = ["a"]
    def numbers(): return [1, 2]
    def make():
        def inner(x):
            assert x == 1 and WORDS, "more words"
            assert numbers() == [1, x]
        def messages():
            found = []
            for x in 3, 1:
                try:
                    inner(x)
                except AssertionError as error:
                    found.append("/".join(str(error).splitlines()))
            return found
        return messages
"""


def test_an_assert_that_pytest_rewrote_fails_there_with_or_without_pytest(
    project, monkeypatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # They are for the pytest that runs this.
    project.write("asserting.py", ASSERTING)
    project.write("hidden.py", ASSERTING)
    project.write_all("""
        # test_it.py
        import pytest
        pytest.register_assert_rewrite("asserting", "hidden")
        import asserting, hidden
        from shipping import ship
        @pytest.mark.parametrize("module", [asserting, hidden])
        def test_it(module):
            assert "@pytest_ar" in vars(asserting)
            for x, message in zip([3, 1], ship(module.make()), strict=True):
                print("|", module.__name__, x, message)
    """)

    command = ("-m", "pytest", "-sq", "-p", "no:cacheprovider", "test_it.py")
    printed = project.run(*command, main="")

    for expected in (
        "| asserting 3 more words/assert (3 == 1)",
        "where [1, 2] = numbers()",
        "| hidden 3 more words/",
        "| hidden 1 assert [1, 2]",
        "2 passed",
    ):
        assert expected in printed
