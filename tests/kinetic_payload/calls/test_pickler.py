"""`Data` wherever pickle meets it, found by pickle's own hooks and loaded in another process."""

import sys

import pytest


def test_data_is_found_wherever_pickle_reaches_it(project):
    project.copy("data_anywhere")

    assert project.run("run.py") == "True 10\n10"


def test_shared_data_stays_shared_and_volumes_have_their_mounts(project):
    project.write_all("""
        # run.py
        from shipping import Data, dump, ship
        one, other = Data("one"), Data("other")
        def main(a, b, c):
            return a is b["x"], a == c, one, a
        dumped = dump(main, one, {"x": one}, other, volumes={"/data": one})
        print([(found.key, found.value.path, found.mount) for found in dumped.data])
        print(*ship(main, one, {"x": one}, other))
    """)

    assert project.run("run.py") == (
        "[('d0', 'one', '/data'), ('d1', 'one', None), ('d2', 'other', None)]\n"
        "True False /data/d0 /data/d0"
    )


def test_module_level_data_can_be_passed_and_is_not_found_by_itself(project):
    project.write_all("""
        # train.py
        from shipping import Data
        DIGITS = Data("digits")
        def main(path=None):
            return path, type(DIGITS).__name__
        # run.py
        import train
        from shipping import dump, ship
        print(ship(train.main, train.DIGITS), len(dump(train.main).data))
    """)

    assert project.run("run.py") == "('/data/d0', 'Data') 0"


def test_values_of_the_scripts_types_come_back_as_values_of_its_own_types(project):
    project.copy("returned.py")

    assert project.run("returned.py").replace("computed\n", "").splitlines() == [
        "True True True",
        "(1, 3, 3, 'p') True {'x': 1} 8",
        "{'size': 7} 7 3",
        "True True",
        "True Child p",
        "True 5 True",
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with Python 3.12")
def test_type_parameters_and_aliases_of_a_script_travel(project):
    project.copy("type_parameters.py")

    assert project.run("type_parameters.py").splitlines() == [
        "(1, (1, 2)) True",
        "(True, '__main__', 'Json')",
        "True True True Many __main__ ['Ts', 'P', 'T']",
        "The type alias Tree of __main__ cannot be pickled by value: it has type parameters, and its "
        "value refers to itself.",
    ]


def test_exceptions_with_their_own_init_are_returned_and_raised_whole(project):
    project.copy("exceptions.py")

    assert project.run("exceptions.py") == "3 /x 5\nNone False"


def test_a_method_of_a_builtin_type_travels(project):
    project.write_all("""
        # run.py
        from shipping import ship
        print(ship(str.upper, 'a'), ship([3, 1].index, 1))
    """)

    assert project.run("run.py") == "A 1"
