"""`kinetic accelerators`: the catalogue, and one entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kinetic_servers.stub_jobs import run


def listed(home: Path, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("accelerators", "--json", *args, home=home).stdout)
    return found


def test_accelerators_of_every_kind_are_listed(tmp_path: Path) -> None:
    assert {row["kind"] for row in listed(tmp_path)} == {"cpu", "gpu", "tpu"}
    assert {row["kind"] for row in listed(tmp_path, "--kind", "gpu")} == {"gpu"}
    assert len(listed(tmp_path, "--all")) > len(listed(tmp_path)) > 90


def test_one_accelerator_is_described(tmp_path: Path) -> None:
    ran = run("accelerators", "tpu-v5e-16:spot", "--json", home=tmp_path)

    assert json.loads(ran.stdout) == {
        "name": "v5litepod-16:spot",
        "kind": "tpu",
        "devices": 16,
        "topology": "4x4",
        "hosts": 4,
        "devices_per_host": 4,
        "machine_type": "ct5lp-hightpu-4t",
        "label": "tpu-v5-lite-podslice",
        "spot": True,
        "aliases": ["v5e-16:spot"],
    }


def test_the_beginning_of_a_name_selects_and_completes(tmp_path: Path) -> None:
    names = {row["name"].split("-")[0] for row in listed(tmp_path, "v5")}

    def completed(words: str) -> str:
        place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        return run(
            home=tmp_path, environment={"_KINETIC_COMPLETE": "bash_complete", **place}
        ).stdout

    assert names == {"v5litepod", "v5p"}
    assert run("accelerators", "v55", home=tmp_path).exit_code == 1
    assert "plain,v5e-8\n" in completed("kinetic accelerators v5")
    assert "plain,tpu-v5p-8\n" in completed("kinetic pool add --accelerator tpu-v5p-")


def test_a_table_has_a_cell_in_every_column(tmp_path: Path) -> None:
    lines = run("accelerators", home=tmp_path).stdout.splitlines()

    assert {len(line.split()) for line in lines} <= {8, 9}
    assert lines[1].split() == ["cpu", "cpu", "1", "-", "1", "-", "-", "-"]
