"""What an import may cost and drag in, and that none leads back to where it began."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

CLOUD = {"google", "kubernetes", "grpc", "jax", "numpy"}
HEAVY = CLOUD | {"msgspec", "psutil", "rich", "asyncio", "cloudpickle"}
CLIENTS = {"kubernetes", "urllib3", "yaml", "ssl"}
DECORATE = "import kinetic\n@kinetic.run(accelerator='tpu-v5litepod-4')\ndef f(): pass"


@cache
def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import kinetic", HEAVY),
        ("import kinetic; kinetic.Data('x')", HEAVY),
        ("import kinetic_cli.main", HEAVY),
        (DECORATE, CLOUD),
        ("import kinetic_k8s.accelerators", CLIENTS),
        ("import kinetic_k8s.manifests.job", CLIENTS),
        ("import kinetic_k8s.manifests.volumes", CLIENTS),
        ("import kinetic_k8s.reading.diagnosis", CLIENTS),
    ],
)
def test_an_import_loads_no_library_that_it_does_not_need(code: str, unwanted: set[str]) -> None:
    assert modules_after(code) & (unwanted - modules_after("pass")) == set()


def test_no_module_imports_itself_through_others_at_run_time() -> None:
    packages = (
        "kinetic_payload",
        "kinetic_runner",
        "kinetic_images",
        "kinetic_k8s",
        "kinetic",
        "kinetic_cli",
    )
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    imports = {
        module: graph.find_modules_directly_imported_by(module) - {module}
        for module in graph.modules
    }
    cycle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle = error.args[1]

    assert cycle == [], "an import inside a function counts as well"
