"""Globals of the project's modules have the same values in the job as in the program."""

from __future__ import annotations


def test_an_object_that_a_script_shares_with_its_modules_is_one_object_in_the_job(project):
    project.copy("shared_objects")

    assert project.run("run.py").splitlines() == [
        "((0.5, ['a', 'b', 'c'], 2), True) (0.6, ['a', 'b'], 1) (0.7, ['a', 'b'], 1) (0.8, ['a', 'b'], 3)",
        "(0.2, ['a', 'b'], 1)",
    ]


def test_state_that_was_set_before_the_call_is_the_same_by_every_way_to_read_it(project):
    project.copy("state_of_modules")

    assert project.run("run.py") == "True " * 7 + "64"


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
    project.copy("attributes")

    assert project.run("run.py").splitlines() == [
        "(2, ['a', 'b'], 2, 3, 3, {'a': 1, 'b': 2}, 4, 5, 'mine')",
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


def test_a_value_that_cannot_be_sent_is_refused_or_named_in_a_warning(project):
    project.copy("unsendable")

    client, hint, table = project.run("run.py").splitlines()
    assert client.startswith(
        "The call reads 'CLIENT' of the module 'lib'. The program sets it after the import, and its value, a "
        "_thread.lock, cannot be pickled (TypeError"
    )
    assert hint.startswith("Pass it as an argument")
    assert table == "(None, 5, 3000000, 1, 200000)"  # The source does not show this change.
    parts, hint, value = project.run("changing.py").splitlines()
    assert parts.startswith("The call reads 'PARTS' of the module 'lib'.")
    assert value == "(None, 5, 3000001, 2, 200001)"
    parts, names, value, made = project.run("other.py").splitlines()
    assert parts.startswith("lib.PARTS, a dict of 2, cannot be pickled (TypeError: cannot pickle")
    assert names.startswith(
        "lib.NAMES, a list of 200000, has more than 1 MB, so the job has what its own import"
    )
    assert value == "(None, 5, 3000000, 1, 200000, 1, 200000, 5)"
    assert made.startswith(
        "lib.MADE is computed where the module is imported: here 5, at the call a _thread.lock."
    )


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
        print((WORKSPACE / "warnings.txt").read_text().replace(str(pid), "1").replace(str(lib.PID), "2"))
    """)

    # A path in the project is the same there.
    assert project.run("run.py", "x").splitlines() == [
        "lib.PID is computed where the module is imported: here 1, at the call 2. Pass it as an argument if the "
        "job needs the value of the call."
    ]


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
