"""`__main__`, rebuilt in the job so that process pools find the user's functions."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kinetic_payload.calls.rebuild import set_up

if TYPE_CHECKING:
    from kinetic_payload.calls.call import CallHeader


def rebuild(header: CallHeader, workspace: Path) -> ModuleType:
    """Replace the runner's `__main__` by a new one, and return it. Call this before `load_call`.

    *workspace* is the folder of the extracted project. The paths that the call needs at the end of `sys.path`
    are added there. No code of the user is executed or imported.
    """
    import builtins

    main = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={}, __cached__=None)
    if header.main is not None:
        file = str(workspace / header.main)
        main.__file__ = file
        if header.main_kind == "module" and header.main_name:
            # `python -m`: relative imports need the package, spawned processes the module's name.
            main.__spec__ = ModuleSpec(header.main_name, None, origin=file)
            main.__package__ = main.__spec__.parent
    for path in header.late_paths:
        entry = str(workspace / path)
        if entry not in sys.path:
            sys.path.append(entry)
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # an alias that multiprocessing makes when it is imported
        sys.modules["__mp_main__"] = main
    set_up(str(workspace), main)
    return main
