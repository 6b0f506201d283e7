from __future__ import annotations

import pytest

from kinetic.jobs.record import label_of
from kinetic_k8s.manifests.labels import is_label_value


@pytest.mark.parametrize(
    ("user", "machine", "expected"),
    [
        ("ada", "laptop", "ada.laptop"),
        ("ada", "laptop.example.com", "ada.laptop"),
        ("Ada Lovelace", "büro", "Ada-Lovelace.b-ro"),
        ("_ada", "-", "ada"),
        ("a" * 60, "machine", "a" * 60 + ".ma"),
        ("a" * 62, "machine", "a" * 62),
    ],
)
def test_user_and_machine_become_a_label(user: str, machine: str, expected: str) -> None:
    assert label_of(user, machine) == expected
    assert is_label_value(expected)
