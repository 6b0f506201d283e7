import io
import json
import textwrap

import pytest

from kinetic_payload.calls.call import read_header
from kinetic_payload.errors import RecordError

# Each module below is a user's; `ship` runs the call in a process that has only the snapshot.

DECORATING = """
    import functools

    def remote(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            raise RuntimeError("this would submit a job")
        return wrapper

    class Remote:
        def __init__(self, function):
            functools.update_wrapper(self, function)
        def __call__(self, *args):
            return "remote", self.__wrapped__(*args)
        def __get__(self, instance, owner):
            return self if instance is None else functools.partial(self, instance)
"""
LOCKED = """
    import threading
    LOCK = threading.Lock()
    TABLE = bytes(50_000_000)
"""


def test_functions_of_the_project_are_imported_in_the_job_also_behind_decorators(project):
    project.write("decorating.py", DECORATING)
    project.write(
        "train.py",
        LOCKED
        + """
    from decorating import Remote, remote
    def main(x):
        return x + 1, __file__
    @remote
    def wrapped(x):
        return x + 1
    @Remote
    @remote
    def twice(x):
        return x + 2
    @Remote
    def held(x):
        return x + 3
    """,
    )
    project.write_all("""
        # run.py
        from shipping import dump, ship
        import train
        value, file = ship(train.main, 1)
        print(value, file.endswith("workspace/project/train.py"), dump(train.main, 1).size < 100)
        print(ship(train.wrapped.__wrapped__, 1), ship(train.twice.__wrapped__.__wrapped__, 1))
        print(ship(train.held.__wrapped__, 1), ship(train.held, 1))
        print(dump(train.wrapped.__wrapped__).size < 200)
    """)

    assert project.run("run.py") == "2 True True\n2 3\n4 ('remote', 4)\nTrue"


def test_a_function_is_found_where_its_decorator_does_nothing_in_a_job(project):
    project.write_all("""
        # train.py
        import functools, os
        def remote(function):
            return function if "client" not in os.environ else wrapped("never", function)
        def timed(function):
            return wrapped("timed", function)
        def wrapped(kind, function):
            @functools.wraps(function)
            def wrapper(*args):
                assert kind != "never"
                return kind, function(*args)
            return wrapper
        @remote
        @timed
        def main(x):
            return x
        # run.py
        import os
        os.environ["client"] = "1"
        import train
        from shipping import ship
        del os.environ["client"]
        print(ship(train.main.__wrapped__, 1), ship(train.main.__wrapped__.__wrapped__, 1))
    """)

    assert project.run("run.py") == "('timed', 1) 1"


def test_methods_of_project_classes_are_found_by_name(project):
    project.write("decorating.py", DECORATING)
    project.write(
        "train.py",
        LOCKED
        + """
    from decorating import Remote
    class Trainer:
        rate = 2
        def __init__(self, x):
            self.x = x
        def plain(self, y):
            return self.x + y
        @Remote
        def decorated(self, y):
            return self.x * y
        @classmethod
        def made(cls, y):
            return cls.rate * y
        @staticmethod
        def alone(y):
            return -y
        class Inner:
            def deep(self):
                return "deep"
    class Child(Trainer):
        rate = 5
    """,
    )
    project.write_all("""
        # run.py
        from shipping import dump, ship
        from train import *
        trainer = Trainer(3)
        print(ship(trainer.plain, 4), ship(Trainer.decorated.__wrapped__, trainer, 4))
        print(ship(Trainer.made, 4), ship(Child.made, 4), ship(Trainer.alone, 4))
        print(ship(Trainer.Inner.deep, Trainer.Inner()), ship(Child.plain, Child(1), 1))
        print(dump(Child.made, 1).size < 100)
    """)

    assert project.run("run.py") == "7 12\n8 20 -4\ndeep 2\nTrue"


def test_src_layout_packages_and_namespace_packages_go_by_reference(project):
    project.write("src/pkg/__init__.py", LOCKED)
    project.write("src/pkg/deep/__init__.py", "")
    project.write_all("""
        # src/pkg/deep/mod.py
        from .. import TABLE
        from ns.part import NAME
        def main():
            from . import mod
            return len(TABLE), NAME, mod.main is main
        # ns/part.py
        NAME = 'part'
        def main(): return NAME
        # run.py
        from shipping import dump, ship
        from pkg.deep import mod
        import ns, ns.part
        print(ship(mod.main), ship(ns.part.main), ship(getattr, ns, "__name__"))
        print(dump(mod.main).size < 100)
    """)

    assert project.run("run.py", paths=":src") == "(50000000, 'part', True) part ns\nTrue"


def test_a_nested_function_travels_as_code_and_uses_the_module_that_is_there(project):
    project.write(
        "train.py",
        LOCKED
        + """
    import functools
    counter = [0]
    def make(scale):
        def inner(x, *, y=1):
            with LOCK:
                counter[0] += 1
            return x * scale + y, len(TABLE), counter[0]
        return inner
    square = lambda x: (x * x, LOCK.locked(), len(TABLE))
    def hiding(function):
        def wrapper(x):
            return "hidden", function(x)
        return wrapper
    @hiding
    def hidden(x):
        return len(TABLE) + x
    def factory():
        class Local:
            def size(self):
                return len(TABLE)
        return Local()
    """,
    )
    project.write_all("""
        # run.py
        from shipping import dump, ship
        import train
        print(ship(train.make(3), 2), ship(train.square, 4), ship(train.hidden, 1))
        print(ship(train.factory().size))
        print(dump(train.make(3), 2).size < 2000)
    """)

    assert project.run("run.py") == (
        "(7, 50000000, 1) (16, False, 50000000) ('hidden', 50000001)\n50000000\nTrue"
    )


def test_files_under_another_name_and_ignored_modules_go_by_value(project):
    project.write_all("""
        # odd-name.py
        BASE = 40
        def main(x):
            return BASE + x
        class C:
            v = 1
    """)
    project.write("secret/__init__.py", "")
    project.write_all("""
        # secret/mod.py
        def main(): return 'by value'
        # run.py
        import importlib.util, sys
        from shipping import ship
        import secret.mod
        for name, registered in (("other", True), ("third", False)):
            spec = importlib.util.spec_from_file_location(name, "odd-name.py")
            module = importlib.util.module_from_spec(spec)
            if registered:
                sys.modules[name] = module
            spec.loader.exec_module(module)
            print(ship(module.main, 2), type(ship(lambda m: m(), module.C)) is module.C)
        print(ship(secret.mod.main))
    """)

    assert project.run("run.py", ignored="secret") == "42 True\n42 True\nby value"


def test_a_folder_on_the_path_outside_the_root_goes_by_value(project):
    project.write(
        "../outside/sibling.py",
        LOCKED
        + """
    import helper
    from helper import doubled
    BASE = 10
    class Thing:
        def __init__(self, x):
            self.x = x
        def grown(self):
            return Thing(self.x + BASE)
    def main(x):
        return doubled(x) + helper.tripled(x) + BASE
    def counted():
        global BASE
        BASE += 1
        return BASE
    """,
    )
    project.write_all("""
        # ../outside/helper.py
        import threading
        lock, FACTOR = threading.Lock(), 3
        def doubled(x):
            return 2 * x
        def tripled(x):
            return FACTOR * x
        # run.py
        from shipping import dump, ship
        import sibling
        from sibling import Thing
        def main(x):
            lock = None
            return sibling.main(x), sibling.counted(), sibling.BASE, Thing(x)
        value = ship(main, 1)
        print(value[:3], type(value[3]) is Thing, dump(main, 1).size < 5000)
        def back():
            return lambda x: sibling.main(x)
        print(ship(back)(1), ship(sibling.main, 1), ship(Thing(1).grown).x)
        def absent():
            return getattr(sibling, "TABLE")
        try:
            ship(absent)
        except AttributeError as error:
            print(str(error)[:60])
    """)

    assert project.run("run.py", on_path=(project.outside,)).splitlines() == [
        "(15, 11, 11) True True",
        "15 15 11",
        "'TABLE' of the module 'sibling' was not shipped. The module ",
    ]


def test_installed_packages_go_by_reference_also_from_a_venv_in_the_project(project):
    site = ".venv/lib/python3/site-packages"
    project.write(f"{site}/third.py", LOCKED + "    def main(): return 1\n    class C: pass")
    project.write("../outside/target.py", LOCKED + "    def main(): return 1")
    project.write("../outside/target-1.dist-info/RECORD", "")
    project.write_all("""
        # run.py
        import json.decoder, collections, msgspec
        from shipping import dump
        import target, third
        for thing in (third.main, third.C, third, target.main, json.decoder, json.JSONDecoder.decode,
                      collections.OrderedDict, msgspec, msgspec.json.encode, msgspec.Struct):
            assert dump(thing).size < 120, thing
        def uses_them():
            return third.main(), target.main(), msgspec.json.encode(3)
        print(dump(uses_them).size < 1500)
    """)
    paths = (project.root / site, project.outside)

    assert project.run("run.py", on_path=paths, ignored=".venv") == "True"


def test_a_package_that_an_import_hook_found_is_on_the_jobs_path(project):
    # What an editable install of setuptools does for a flat layout.
    project.write("libs/tool/mypkg/__init__.py", LOCKED)
    project.write_all("""
        # libs/tool/mypkg/mod.py
        from mypkg import TABLE
        def main(): return len(TABLE)
        # libs/tool/json.py
        raise ImportError('shadowed the standard library')
        # run.py
        import importlib.util, os, sys
        class Hook:
            def find_spec(self, name, path=None, target=None):
                if name == "mypkg":
                    return importlib.util.spec_from_file_location(
                        name, os.path.abspath("libs/tool/mypkg/__init__.py"),
                        submodule_search_locations=[os.path.abspath("libs/tool/mypkg")])
        sys.meta_path.append(Hook())
        from shipping import dump, ship
        import mypkg.mod
        print(ship(mypkg.mod.main), dump(mypkg.mod.main).size < 100)
    """)

    assert project.run("run.py") == "50000000 True"


def test_code_without_a_file_travels_by_value(project):
    code = """
    import multiprocessing, sys
    from shipping import ship
    def helper(x):
        return x + 1
    class C:
        def go(self):
            return helper(1)
    def main():
        with multiprocessing.get_context("fork").Pool(1) as pool:
            mapped = pool.map(helper, [1, 2])
        return C().go(), hasattr(sys.modules["__main__"], "__file__"), mapped, C()
    *value, c = ship(main)
    print(*value, type(c) is C)
    """
    printed = project.run("-c", textwrap.dedent(code), main="", kind="interactive")

    assert printed == "2 False [2, 3] True"


def test_code_by_value_names_its_source_in_the_snapshot(project):
    project.write(
        "run.py",
        LOCKED
        + """
    import traceback
    from shipping import dump, ship
    def main():
        def inner():
            return traceback.extract_stack()[-1]
        return main.__code__.co_filename, inner().filename, __file__, inner().line
    *files, line = ship(main)
    print(*{file.partition("workspace/")[2] for file in files}, line)
    print(dump(main).size < 2000)  # Without the lock and the table, which it does not use.
    """,
    )

    line = "return traceback.extract_stack()[-1]"
    assert project.run("run.py") == f"project/run.py {line}\nTrue"


def test_the_payload_is_the_header_line_and_then_the_pickle(project):
    project.write_all("""
        # run.py
        import hashlib, os
        from shipping import *
        def main(): pass
        dumped = dump(main, 1)
        digest = write(dumped, "out.pkl")
        whole = open("out.pkl", "rb").read()
        assert digest == hashlib.sha256(whole).hexdigest()
        assert len(whole.split(b"\\n", 1)[1]) == dumped.size
        print(whole.split(b"\\n", 1)[0].decode())
    """)

    header = json.loads(project.run("run.py"))

    expected = {"function": "main", "module": "__main__", "main": "run.py", "format": 1}
    assert {key: header[key] for key in expected} == expected


@pytest.mark.parametrize("payload", [b"", b"{}"])
def test_a_payload_that_ends_within_its_header_is_refused(payload: bytes) -> None:
    with pytest.raises(RecordError, match="incomplete"):
        read_header(io.BytesIO(payload))
