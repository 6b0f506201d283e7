from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from typing import Any

import pytest

from kinetic_payload.frozen import frozen


def classes(make: Any) -> tuple[type, type]:
    """Return a class and a subclass with keyword-only fields, made by the decorator that *make* returns."""

    @make()
    class Base:
        """A base."""

        name: str
        size: int = 1
        seen: list[int] = field(default_factory=list, compare=False)
        note: str = field(default="", repr=False)

    @make(kw_only=True)
    class Derived(Base):
        """A subclass."""

        key: dict[str, int] = field(hash=False)

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("no name")

    return Base, Derived


OURS = classes(frozen)
THEIRS = classes(lambda **options: dataclass(frozen=True, **options))


@pytest.mark.parametrize(
    "does",
    [
        lambda base, _: base("a"),
        lambda base, _: base("a", 2, [3], note="n"),
        lambda base, _: base(),
        lambda base, _: base("a", name="b"),
        lambda base, _: base("a", 2, [], "n", 5),
        lambda base, _: base("a", other=1),
        lambda _, derived: derived("a", key={"k": 1}),
        lambda _, derived: derived("a", 1, [], "", {"k": 1}),
        lambda _, derived: derived("", key={}),
        lambda base, _: setattr(base("a"), "name", "b"),
        lambda base, _: delattr(base("a"), "name"),
        lambda base, _: base("a", seen=[1]) == base("a"),
        lambda base, _: base("a") == base("b"),
        lambda base, _: base("a", math.nan) == base("a", math.nan),
        lambda base, _: base("a") == ("a", 1),
        lambda base, _: len({base("a"), base("a", seen=[1]), base("b")}),
        lambda base, derived: derived("a", key={}) == base("a"),
        lambda _, derived: len({derived("a", key={}), derived("a", key={})}),
        lambda _, derived: asdict(replace(derived("a", key={}), size=9, key={"k": 2})),
        lambda base, _: copy.deepcopy(base("a", seen=[1])).seen,
    ],
)
def test_a_frozen_class_does_what_a_frozen_dataclass_does(does: Any) -> None:
    def outcome(kinds: tuple[type, type]) -> object:
        try:
            return repr(does(*kinds))
        except (TypeError, ValueError, FrozenInstanceError) as error:
            return type(error)

    assert outcome(OURS) == outcome(THEIRS)


@frozen()
class Importable:
    """A class that can be pickled."""

    name: str


def test_a_frozen_object_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Importable("a"))) == Importable("a")
