"""The modules of `kinetic` that the runner's bundle contains, so that user code can import them in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MODULES: Final = (
    "__init__",
    "_wire",
    "data",
    "decorator",
    "errors",
    "job_status",
    "submit/__init__",
    "submit/functions",
)
"""Modules that import only the standard library and other modules of the bundle."""


def light_files() -> dict[str, bytes]:
    """Return the sources of `MODULES` by their path in the bundle: `light/kinetic/….py`."""
    folder = Path(__file__).parent
    return {f"light/kinetic/{name}.py": (folder / f"{name}.py").read_bytes() for name in MODULES}
