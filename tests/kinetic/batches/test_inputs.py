"""Inputs of a batch: what each stands for, which are refused, and how they are packed."""

from __future__ import annotations

import json
import pickle
from contextlib import nullcontext
from hashlib import sha256
from typing import Any

import pytest

from kinetic.batches.inputs import Inputs, arguments_of, checker_of
from kinetic.errors import InvalidRequestError, PayloadError
from kinetic_payload.layout import JobObjects
from kinetic_payload.testing.memory_store import MemoryStore

GROUP = JobObjects("grp-0a1b2c3d")


@pytest.mark.parametrize(
    ("mode", "given", "args", "kwargs"),
    [
        ("auto", 1, (1,), {}), ("auto", None, (None,), {}), ("auto", "ab", ("ab",), {}),
        ("auto", {1, 2}, ({1, 2},), {}), ("auto", (), (), {}), ("auto", [], (), {}),
        ("auto", (1, 2), (1, 2), {}), ("auto", [1, [2]], (1, [2]), {}),
        ("auto", {"lr": 1}, (), {"lr": 1}), ("auto", {}, (), {}),
        ("auto", {"a b": 1}, ({"a b": 1},), {}), ("auto", {"lr": 1, 2: 3}, ({"lr": 1, 2: 3},), {}),
        ("single", (1, 2), ((1, 2),), {}), ("single", {"lr": 1}, ({"lr": 1},), {}),
        ("args", (1, 2), (1, 2), {}), ("args", [{"lr": 1}], ({"lr": 1},), {}),
        ("kwargs", {"lr": 1}, (), {"lr": 1}), ("kwargs", {"a b": 1}, (), {"a b": 1}),
    ],
)  # fmt: skip
def test_an_input_stands_for_the_arguments_of_its_mode(
    mode: Any, given: Any, args: Any, kwargs: Any
) -> None:
    assert arguments_of(given, mode) == (args, kwargs)


@pytest.mark.parametrize(
    ("mode", "given"), [("args", "ab"), ("args", {"lr": 1}), ("kwargs", [1]), ("kwargs", {1: 2})]
)
def test_an_input_that_does_not_fit_its_mode_is_refused(mode: Any, given: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"input_mode='{mode}' needs"):
        arguments_of(given, mode)


class Call:
    """Pickles inputs as a packaged call does."""

    data = ()

    def dump_input(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bytes, tuple[str, ...]]:
        try:
            return pickle.dumps((args, kwargs)), ()
        except Exception as error:
            raise PayloadError(f"Cannot pickle {name}.") from error


def packed(inputs: Any, mode: Any = "auto", **common: Any) -> Inputs:
    """Pack the inputs of a function with the parameters `x` and `y`."""
    found = Inputs(inputs, mode, checker_of(lambda x, y=0: None, (), common))
    found.pack(Call())  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("inputs", ["abc", b"abc", {"x": 1}, 5, None, [], (), range(0), iter([])])
def test_what_is_no_inputs_or_none_of_them_is_refused(inputs: Any) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"a list of inputs was expected|no input|is none"
    ):
        packed(inputs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((1, 2, 3), "Input 2: .*too many positional"),
        ({"z": 1}, "Input 2: .*argument"),
        ({"y": 1}, "Input 2: .*missing a required argument: 'x'"),
        (lambda: 0, "Cannot pickle input 2"),
    ],
)  # fmt: skip
def test_a_wrong_input_of_a_list_is_an_error_and_one_of_an_iterator_a_failed_slot(
    wrong: Any, message: str
) -> None:
    with pytest.raises((InvalidRequestError, PayloadError), match=message):
        packed([1, 2, wrong, 4])

    found = packed(iter([1, 2, wrong, 4]))

    assert (found.count, list(found.failed)) == (4, [2])
    assert len(unpacked(found)) == 3


def test_arguments_in_common_may_be_left_out_of_inputs_and_are_replaced_by_theirs() -> None:
    assert packed([{}, {"y": 1}, {"x": 3}], x=2).count == 3


def test_an_iterator_without_one_good_input_raises_the_first_error() -> None:
    with pytest.raises(ZeroDivisionError):
        packed(1 // each for each in (0, 1))


def unpacked(inputs: Inputs) -> dict[int, Any]:
    """Return the inputs that were not refused, as a worker reads them from a store."""
    store, found, first = MemoryStore(), {}, 0
    inputs.upload(store, GROUP, lambda name: nullcontext())
    for number, pack in enumerate(inputs.packs):
        data = store.read(GROUP.inputs(number))
        assert (pack.first, sha256(data[: pack.head]).hexdigest()) == (first, pack.digest)
        place = pack.head
        heads = json.loads(data[:place])
        assert len(heads) == pack.count
        for index, (size, digest, _) in enumerate(heads, first):
            part = data[place : place + size]
            assert sha256(part).hexdigest() == digest
            if index not in inputs.failed:
                found[index] = pickle.loads(part)
            place += size
        assert place == len(data)
        first += pack.count
    assert first == inputs.count
    inputs.close()
    return found


@pytest.mark.parametrize(
    ("inputs", "objects"),
    [
        ([7], 1),
        (list(range(2000)), 1),
        (list(range(4001)), 3),
        ([bytes(3 << 20)] * 7, 3),
    ],
)
def test_many_or_large_inputs_are_in_a_few_objects(inputs: list[Any], objects: int) -> None:
    found = packed(inputs)

    assert len(found.packs) == objects
    assert unpacked(found) == {index: ((each,), {}) for index, each in enumerate(inputs)}
