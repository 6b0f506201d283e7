"""The test cloud: a folder outside the repository with what some stages of `.ci/run` need.

`KINETIC_TESTCLOUD` names it; without that variable it is `shared/testcloud` beside the checkout. If
there is no such folder, `.ci/run` skips those stages.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "KINETIC_TESTCLOUD"
BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "testcloud"


def testcloud() -> Path | None:
    """Return the folder of the test cloud, or None if there is none.

    Raises:
        NotADirectoryError: `KINETIC_TESTCLOUD` names a folder that does not exist.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named).absolute() if named else BESIDE
    if folder.is_dir():
        return folder
    if named:
        raise NotADirectoryError(f"{VARIABLE} names {named!r}, which is not a folder.")
    return None
