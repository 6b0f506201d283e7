from __future__ import annotations

import collections.abc
import dataclasses
import decimal
import fractions
import inspect
import threading
import typing
from typing import Any, Callable, Literal, Optional

import helpers as h
from helpers import Helper, Missing, missing

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

    def of(self) -> h.Other: ...


class Unpicklable:
    lock = threading.Lock()


@dataclasses.dataclass
class Config:
    rate: decimal.Decimal
    user: UserId = UserId(1)
    shapes: "list['Shape']" = dataclasses.field(default_factory=list)


def plain(
    x: Vector, y: Callable[[Any], Helper], *rest: T, **more: collections.abc.Mapping
) -> Shape: ...
def lost(x: Unpicklable, y: Vector, z: missing.thing, w: Missing) -> undefined: ...  # noqa: F821
def hints(x):
    try:
        return {key: str(value) for key, value in typing.get_type_hints(x).items()}
    except NameError as error:
        return str(error)


def asked():
    @dataclasses.dataclass
    class Inside:
        size: Side

    return [hints(x) for x in (plain, Config, Shape, Shape.grown, Side, Side.of, Inside)], [
        str(inspect.signature(plain, eval_str=True))
    ]


def fewer():
    return (
        hints(lost),
        "Vector" in globals(),
        "Unpicklable" in globals(),
        "large" in globals(),
        lost.__annotations__,
    )


if __name__ == "__main__":
    from shipping import dump, ship

    there, here = ship(asked), asked()
    print(there if there != here else True, asked()[0][0]["return"], dump(asked).size < 100_000)
    value = ship(fewer)
    print(*value[:4], value[4] == lost.__annotations__)
