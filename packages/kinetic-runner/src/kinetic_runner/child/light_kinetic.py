"""(child) Decide which `kinetic` user code imports in a job: the installed one, or the light one of the bundle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

import kinetic_runner
from kinetic_payload.layout import WIRE_LINE

_NAME = "kinetic"


def with_kinetic(path: Sequence[str]) -> list[str]:
    """Return the import *path*, with the bundle's `kinetic` first unless the installed one is usable.

    An unrelated package has the same name. Another version of Kinetic may use another wire format, or other
    modules of `kinetic_payload`, which always comes from the bundle.
    """
    light = f"{os.path.dirname(os.path.dirname(str(kinetic_runner.__file__)))}/light"  # noqa: PTH120
    if light not in path or _usable(light):
        return list(path)
    return [light, *(entry for entry in path if entry != light)]


def _usable(light: str) -> bool:
    try:
        origin = getattr(find_spec(_NAME), "origin", None) or ""
        if origin.startswith(light):
            return True
        # Read it as text: it must not be imported before it is known to be Kinetic's.
        wire = os.path.join(os.path.dirname(origin), "_wire.py")  # noqa: PTH118, PTH120
        with open(wire, encoding="utf-8") as lines:  # noqa: PTH123 - pathlib takes time
            return WIRE_LINE in map(str.rstrip, lines)
    except (OSError, ValueError):
        return False
