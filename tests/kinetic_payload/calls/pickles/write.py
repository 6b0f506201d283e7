"""Write pickles as jobs of commit b9f8808 left them in their stores, when modules had other names.

Run with that commit's sources and Python 3.11: `PYTHONPATH=<sources> python write.py`.
"""

import enum
import functools
import typing
from pathlib import Path

import jax
from kinetic_payload.module_globals import UntravelledGlobalError
from kinetic_payload.references import DataRef
from kinetic_runner.call import AwaitableResultError
from kinetic_runner.report import _ErrorPickler

from kinetic_payload.calls import dump_value
from kinetic_payload.errors import StoreError

FOLDER = Path(__file__).parent
UserId = typing.NewType("UserId", int)


class Point:
    def __init__(self, x: int, y: int = 2) -> None:
        self.x, self.y = x, y

    def total(self) -> int:
        return self.x + self.y


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Settings:
    width = 3


class UsersError(Exception):
    def __init__(self, name, code):
        super().__init__(f"{name} failed")
        self.code = code


@jax.tree_util.register_pytree_node_class
class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def tree_flatten(self):
        return (self.left, self.right), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def scaled(factor):
    def scale(x):
        return x * factor

    return scale


def write(name: str, value: object) -> None:
    with (FOLDER / f"{name}.pkl").open("wb") as stream:
        dump_value(value, stream)


if __name__ == "__main__":
    made = Settings()
    made.depth = 4
    reference = DataRef(key="d0", kind="local", source="data", is_dir=True, name="data")
    write("plain", {"settings": made, "user": UserId, "reference": reference})
    write("colour", Colour.BLUE)
    write("function", scaled(3))
    write("classes", [Point(1), functools.lru_cache(maxsize=3)(scaled(2))])
    write("pytree", Pair(1, 2))
    refused = UntravelledGlobalError("It was set.", hint="Pass it.")
    refused.__cause__ = StoreError("The store failed.")
    awaited = AwaitableResultError("The function returned a coroutine.")
    for name, error in {
        "errors": ExceptionGroup("all", [refused, awaited]),
        "users_error": UsersError("job", 7),
    }.items():
        with (FOLDER / f"{name}.pkl").open("wb") as stream:
            _ErrorPickler(stream, chained=True).dump(error)
