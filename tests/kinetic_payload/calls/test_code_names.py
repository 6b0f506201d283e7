"""Names that stand in annotations only, as text: who asks in a job for their meaning finds it."""

SCRIPT = """
    from __future__ import annotations
    import collections.abc, dataclasses, decimal, fractions, inspect, threading, typing
    from typing import Any, Callable, Literal, Optional
    import helpers as h
    from helpers import Helper, missing, Missing

    Vector = list[float]
    T = typing.TypeVar("T", bound="Shape")
    UserId = typing.NewType("UserId", int)
    large = bytes(5_000_000)

    class Shape:
        parent: Optional[Shape]
        side: Side
        kind: Literal["large"]
        def grown(self, by: decimal.Decimal) -> Shape: ...

    class Side:
        length: fractions.Fraction
        def of(self) -> Corner: ...

    class Corner:
        helper: h.Other

    class Unpicklable:
        lock = threading.Lock()

    @dataclasses.dataclass
    class Config:
        rate: decimal.Decimal
        user: UserId = UserId(1)
        shapes: "list['Shape']" = dataclasses.field(default_factory=list)

    def plain(x: Vector, y: Callable[[Any], Helper], *rest: T, **more: collections.abc.Mapping) -> Shape: ...
    def lost(x: Unpicklable, y: Vector, z: missing.thing, w: Missing) -> undefined: ...
    def hints(x):
        try:
            return {key: str(value) for key, value in typing.get_type_hints(x).items()}
        except NameError as error:
            return str(error)

    def asked():
        @dataclasses.dataclass
        class Inside:
            size: Side
        return [hints(x) for x in (plain, Config, Shape, Shape.grown, Side, Side.of, Corner, Inside)], [
            str(inspect.signature(plain, eval_str=True))
        ]
    def fewer():
        return hints(lost), "Vector" in globals(), "Unpicklable" in globals(), "large" in globals(), lost.__annotations__
"""
HELPERS = """
    import types
    class Helper: pass
    class Other: pass
    missing = types.ModuleType("missing")
    class Missing: pass
    Missing.__module__ = "gone"
"""
MAIN = """
    if __name__ == "__main__":
        from shipping import dump, ship
        there, here = ship(asked), asked()
        print(there if there != here else True, asked()[0][0]["return"], dump(asked).size < 100_000)
        value = ship(fewer)
        print(*value[:4], value[4] == lost.__annotations__)
"""


def test_annotations_mean_in_a_job_what_they_mean_here(project):
    project.write("helpers.py", HELPERS)
    project.write("run.py", SCRIPT + MAIN)

    assert project.run("run.py").splitlines() == [
        "True <class '__main__.Shape'> True",
        "name 'Unpicklable' is not defined True False False True",
    ]


def test_a_package_that_only_annotations_name_may_be_missing_in_a_job(project):
    project.write("../outside/lib/frames.py", "class Frame: pass")
    project.write("../outside/lib/frames-1.dist-info/METADATA", "")
    project.write(
        "run.py",
        """
        from __future__ import annotations
        import typing
        import frames
        from frames import Frame
        from shipping import ship

        class Mine(Frame): pass

        def main(x: Frame, y: typing.Any, z: Mine) -> frames.Frame:
            try:
                return typing.get_type_hints(main)
            except NameError as error:
                return str(error)
        print(ship(main, 1, 2, 3))
        """,
    )

    printed = project.run("run.py", on_path=(project.outside / "lib",))

    assert printed == "name 'Frame' is not defined"
