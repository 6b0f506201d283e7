from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from kinetic.names import job_id_of, k8s_name_of

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
