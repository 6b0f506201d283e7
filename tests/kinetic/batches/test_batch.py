"""The options of a batch, as `run_async_map` takes them."""

from __future__ import annotations

from typing import Any

import pytest

from kinetic.batches.batch import BatchOptions, check_batch_options
from kinetic.errors import InvalidRequestError


def checked(**given: Any) -> BatchOptions:
    plain: dict[str, Any] = {
        "input_mode": "auto", "max_concurrent": 64, "retries": 0, "fail_fast": False,
        "cancel_running_on_fail": False, "max_failures": None, "name": None, "tags": None,
        "common": None, "inputs_per_pod": None,
    }  # fmt: skip
    return check_batch_options(**{**plain, **given})


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("input_mode", ["", "kw", None]),
        ("max_concurrent", [0, -1, 1.5, True, "4"]),
        ("inputs_per_pod", [0, -1, 1.5, True, "4"]),
        ("retries", [-1, 1.5, None, "1"]),
        ("max_failures", [-1, 1.5, "1"]),
        ("name", [1, b"x"]),
        ("tags", [{"a": 1}, {"a": None}, {1: "a"}]),
        ("common", [{1: 2}]),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRequestError, match=option.removesuffix("s")):
            checked(**{option: value})


def test_stopping_what_runs_includes_starting_nothing_more() -> None:
    assert not checked().fail_fast
    assert checked(cancel_running_on_fail=True).fail_fast
