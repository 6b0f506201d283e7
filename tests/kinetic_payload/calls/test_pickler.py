"""`Data` wherever pickle meets it, found by pickle's own hooks and loaded in another process."""

import sys
from importlib.util import find_spec

import pytest


def test_data_is_found_wherever_pickle_reaches_it(project):
    project.copy("data_anywhere")

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
    project.copy("odd_types.py")

    assert project.run("odd_types.py").splitlines()[1:] == [
        "(('<', 's', 'Child', True), <Flags.A|B: 3>, 1, 3, {'x': 1}, 'int', 'any') True",
        "True Child ('<', 's', 'Child', True)",
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with Python 3.12")
def test_type_parameters_and_aliases_of_a_script_travel(project):
    project.copy("type_parameters.py")

    assert project.run("type_parameters.py").splitlines() == [
        "(1, (1, 2)) True",
        "(True, '__main__', 'Json')",
        "The type alias Tree of __main__ cannot be pickled by value: it has type parameters, and its "
        "value refers to itself.",
    ]


def test_an_exception_with_an_init_of_its_own_is_whole_as_argument_value_and_error(project):
    project.copy("exceptions.py")

    assert project.run("exceptions.py") == "3 /x s 5\nNone False"


def test_a_method_of_a_builtin_type_travels(project):
    project.write(
        "run.py", "from shipping import ship\nprint(ship(str.upper, 'a'), ship([3, 1].index, 1))"
    )

    assert project.run("run.py") == "A 1"
