from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kinetic.names import Selection, job_id_of, k8s_name_of

WHEN = datetime(2026, 4, 17, 15, 30, 12, tzinfo=UTC)
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def test_a_job_id_contains_accelerator_function_and_time() -> None:
    expected = "v5e-1-train-model-20260417-153012-abc1234"
    assert job_id_of("v5e-1", "train_model", WHEN, "abc1234") == expected


@pytest.mark.parametrize("accelerator", ["cpu", "v5litepod-16x16x16", "rtx-pro-6000x8"])
@pytest.mark.parametrize("function", ["f", "a" * 100, "__call__", "Überzug", "学習", "a_" * 60, ""])
def test_every_name_is_a_valid_label_of_kubernetes(accelerator: str, function: str) -> None:
    job_id = job_id_of(accelerator, function, WHEN, "abc1234")
    k8s_name = k8s_name_of(function, "abc1234")

    assert len(job_id) <= 63
    assert LABEL.fullmatch(job_id)
    assert job_id.endswith("-20260417-153012-abc1234")
    assert len(k8s_name) <= 22
    assert LABEL.fullmatch(k8s_name)
    assert k8s_name.startswith("kn-")


def test_a_selection_names_what_its_ids_tell() -> None:
    long = job_id_of("v5litepod-4", "a_function_with_a_name_that_no_id_can_hold", WHEN, "0" * 7)
    ids = [
        "cpu-fit-20261120-115959-0000001",
        "cpu-fit-20261120-120000-0000002",
        "cpu-re-fit-20261121-120000-0000003",
        "cpu-train-20261121-120000-0000004",
        long,
    ]

    def chosen(**which: Any) -> list[int]:
        return [ids.index(each) for each in ids if each in Selection(**which).of(ids)]

    assert chosen() == [0, 1, 2, 3, 4]
    assert chosen(since=datetime(2026, 11, 20, 12, 0, 0, 999, tzinfo=UTC)) == [1, 2, 3]
    # The record tells apart what ends alike.
    assert chosen(function="fit") == [0, 1, 2]
    assert chosen(function="a_function_with_a_name_that_no_id_can_hold") == [4]
    assert chosen(newest=1) == [2, 3]
    assert chosen(newest=3, function="fit") == [0, 1, 2]
