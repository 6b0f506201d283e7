"""What an import may cost and drag in, and that none leads back to where it began."""

from __future__ import annotations

import json
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

HEAVY = {
    "google",
    "kubernetes",
    "grpc",
    "jax",
    "numpy",
    "msgspec",
    "psutil",
    "rich",
    "asyncio",
    "cloudpickle",
}


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "code",
    [
        "import kinetic",
        "import kinetic; kinetic.Data('x')",
        "import kinetic_cli.main",
    ],
)
def test_importing_drags_in_nothing_heavy(code: str) -> None:
    loaded = modules_after(code) & (HEAVY - modules_after("pass"))

    assert loaded == set()


@pytest.mark.parametrize(
    "module", ["accelerators", "manifests.job", "reading.diagnosis", "manifests.volumes"]
)
def test_what_is_pure_of_clusters_drags_in_nothing_that_speaks_to_one(module: str) -> None:
    loaded = modules_after(f"import kinetic_k8s.{module}")

    assert loaded & {"kubernetes", "urllib3", "yaml", "ssl"} == set()


def test_decorating_drags_in_no_cloud_sdk_and_no_jax() -> None:
    code = "import kinetic\n@kinetic.run(accelerator='tpu-v5litepod-4')\ndef f(): pass"

    loaded = modules_after(code) & {"google", "kubernetes", "grpc", "jax", "numpy"}

    assert loaded == set()


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
