"""Prices of accelerators: Google's catalogue, else the dated table, else nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kinetic.provisioning.prices import Prices, known_prices
from kinetic.settings.settings import Settings
from kinetic_k8s.manifests.compute_class import parse_priority

CATALOGUE = {
    "TpuV6e": {"us-east5": 2.7},
    "DWS Defined Duration V6e": {"us-east5": 1.35},
    "Nvidia L4 GPU": {"us-east5": 0.56},
    "G2 Instance Core": {"us-east5": 0.025},
    "G2 Instance Ram": {"us-east5": 0.003},
    "Nvidia Tesla A100 GPU": {"us-east5": 2.9},
}


@pytest.mark.parametrize(
    ("name", "dollars", "source"),
    [
        ("v6e-8", 8 * 2.7, "Google's catalogue, us-east5, 2026-11-27"),
        ("v6e-16:flex-start", 16 * 1.35, "Google's catalogue, us-east5, 2026-11-27"),
        ("l4x2", 2 * 0.56 + 24 * 0.025 + 96 * 0.003, "Google's catalogue, us-east5, 2026-11-27"),
        # The catalogue lacks a part of it.
        ("a100x2", 2 * 3.673385, "list price, us-central1, 2025-03-06"),
        ("v6e-8:spot", 8 * 1.4033, "list price, us-east5, 2026-08-07"),
        ("h100x8", 8 * 11.06124999, "list price, us-central1, 2025-03-06"),
    ],
)
def test_a_price_is_that_of_all_machines_and_names_its_source(
    name: str, dollars: float, source: str
) -> None:
    found = Prices("us-east5", CATALOGUE, "2026-11-27").of(parse_priority(name))

    assert found is not None
    assert found.per_hour == pytest.approx(dollars)
    assert found.source == source


@pytest.mark.parametrize(
    "name", ["cpu", "v6e-8:reservation=mine", "v5p-8:spot", "l4x4", "a100x16", "gb200x4", "v4-8"]
)
def test_a_price_that_was_not_found_is_not_known(name: str) -> None:
    assert Prices("us-east5", {}, "2026-11-27").of(parse_priority(name)) is None


@pytest.mark.parametrize(
    "text", ["[1]", '{"TpuV6e": 3}', '{"TpuV6e": {"us-east5": "x"}}', "{", "\xff"]
)
def test_without_a_catalogue_that_can_be_read_or_kept_the_table_counts(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prices.json").write_text(text, encoding="latin-1")
    # As without the extra `clusters`.
    monkeypatch.setitem(sys.modules, "kinetic.provisioning.google.billing", None)
    settings = Settings.from_environment(project="p", zone="us-east5", home=str(tmp_path))

    for ask in (True, False):
        assert known_prices(settings, ask=ask) == Prices("us-east5")
