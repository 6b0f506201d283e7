"""Classes of the entry script: a function finds the same attributes of them on the client and in a job.

Each script's `facts` is called as it is and shipped, and must return the same both times.
"""

import sys
from importlib.util import find_spec

import pytest

SAME = """

    if __name__ == "__main__":
        from shipping import compare
        print(compare(facts), "facts")
"""


def test_enums_of_a_script_are_the_same_in_a_job(project):
    project.copy("enums.py")

    assert project.run("enums.py") == "114 facts"


def test_returned_members_of_an_enum_are_the_clients_own(project):
    project.copy("enums.py")

    assert project.run("enums.py", "home") == "True True True\nTrue True 5.976e+24 3 (1, 2)"


def test_an_enum_may_lead_to_its_members_in_any_way(project):
    project.copy("enums_and_their_members.py")

    assert project.run("enums_and_their_members.py") == "5 facts"


def test_an_enum_may_have_a_metaclass_of_several(project):
    project.write(
        "run.py",
        """
    import abc, enum

    class AbstractEnum(abc.ABCMeta, enum.EnumMeta):
        def first(cls):
            return next(iter(cls))
    class Named(abc.ABC):
        @abc.abstractmethod
        def named(self): ...
    class Way(Named, enum.Enum, metaclass=AbstractEnum):
        UP = 1
        DOWN = 2
        def named(self):
            return self.name

    def facts():
        return {
            "members": [way.named() for way in Way],
            "metaclass": Way.first() is Way.UP,
            "abstract": isinstance(Way.UP, Named) and not isinstance(1, Way),
        }
    """
        + SAME,
    )

    assert project.run("run.py") == "3 facts"


def test_structs_of_a_script_validate_in_a_job_as_here(project):
    project.copy("structs.py")

    assert project.run("structs.py") == "3 facts"


@pytest.mark.timeout(400)  # Two processes import JAX.
@pytest.mark.skipif(find_spec("equinox") is None, reason="Equinox is not installed")
def test_abstract_pytrees_of_a_script_travel(project):
    project.copy("abstract_pytrees.py")

    assert project.run("abstract_pytrees.py") == "3 facts"


def test_values_whose_classes_name_types_of_the_script_are_returned(project):
    project.copy("types_of_fields.py")

    assert project.run("types_of_fields.py") == "True True __main__ True"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="It needs the syntax of Python 3.12")
def test_parameters_and_aliases_of_types_travel_both_ways(project):
    project.write(
        "run.py",
        """
    from dataclasses import dataclass

    type Many[T] = list[T]
    class Call[*Ts, **P]:
        pass
    @dataclass
    class Box[T]:
        content: Many[T]

    def main(box):
        return box, Box([2]), Call(), str(Many), Many.__module__, [str(one) for one in Call.__type_params__ + Box.__type_params__]

    if __name__ == "__main__":
        from shipping import ship
        one, two, call, *said = ship(main, Box([1]))
        print(one == Box([1]), two == Box([2]), type(call) is Call, *said)
    """,
    )

    assert project.run("run.py") == "True True True Many __main__ ['Ts', 'P', 'T']"


def test_classes_of_a_script_are_the_same_in_a_job(project):
    project.copy("classes")

    assert project.run("run.py") == "296 facts"


def test_imported_hooks_find_the_whole_body_of_a_class(project):
    project.copy("hooks")

    assert project.run("run.py") == "5 facts"


def test_generic_models_and_validated_functions_are_those_of_the_script(project):
    pytest.importorskip("pydantic")
    project.copy("models.py")

    assert project.run("models.py") == "True True True\n2 facts"


def test_copyreg_and_pickle_know_classes_of_a_script_in_a_job(project):
    project.copy("copied.py")

    assert project.run("copied.py") == "3 facts"


def test_caches_and_generic_named_tuples_are_returned(project):
    project.write(
        "run.py",
        """
    import functools, typing
    from shipping import ship

    T = typing.TypeVar("T")
    class Pair(typing.NamedTuple, typing.Generic[T]):
        left: T
    @functools.lru_cache
    def known(): return 5
    def main():
        class Local:
            @functools.lru_cache(maxsize=3)
            def double(self, x): return 2 * x
        return Pair[int](1), Local(), known

    if __name__ == "__main__":
        pair, local, same = ship(main)
        print(type(pair) is Pair, local.double(4), type(local).double.cache_parameters()["maxsize"], same is known)
    """,
    )

    assert project.run("run.py") == "True 8 3 True"


def test_a_class_that_equals_another_is_refused_by_name(project):
    project.write(
        "run.py",
        """
        from shipping import ship
        class Equal(type):
            def __eq__(cls, other): return True
            def __hash__(cls): return 1
        class One(metaclass=Equal): pass
        class Two(metaclass=Equal): pass
        def main(): return One is Two
        try:
            print(ship(main))
        except TypeError as error:
            print(error)
        """,
    )

    assert project.run("run.py").startswith(
        "The class Two of __main__ cannot be pickled by value: its metaclass"
    )


def test_a_class_with_a_computed_keyword_is_refused_by_name(project):
    project.copy("classes/shapes.py")
    project.write(
        "run.py",
        """
        import shapes
        from shipping import ship
        class Keyed(shapes.Keyed, key="a" + str(1)):
            pass
        def main():
            return Keyed()
        try:
            ship(main)
        except TypeError as error:
            print(error)
        """,
    )

    printed = project.run("run.py")

    assert printed.startswith(
        "The class Keyed of __main__ cannot be pickled by value: the value of the keyword 'key'"
    )
    assert printed.endswith(
        "Move the class into a module of the project, and import it from there."
    )


def test_classes_made_in_a_job_are_returned_unchanged(project):
    project.copy("classes/shapes.py")
    project.copy("made_in_a_job.py")

    assert project.run("made_in_a_job.py").splitlines() == [
        "8 True True []",
        "Item(x=4) True 3 True",
        "main.<locals>.Data(x=1) False True",
        "True {'home': ['key']}",
    ]
