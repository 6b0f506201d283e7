"""The floor of a local call: two bare Python processes, one started by the other, with cloudpickle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

OUTER = """
import cloudpickle, os, sys
child = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
sys.exit(os.waitpid(child, 0)[1])
"""
"""Takes the place of a supervisor and a runner's parent."""

INNER = """
import cloudpickle, sys
with open(sys.argv[1], "rb") as stream:
    function, args = cloudpickle.load(stream)
with open(sys.argv[2], "wb") as stream:
    cloudpickle.dump(function(*args), stream)
"""


class Pair:
    """A call under way in two bare processes."""

    def __init__(self, folder: Path, function: Callable[..., Any], *args: Any) -> None:
        call, self._value = folder / "call.pkl", folder / "value.pkl"
        call.write_bytes(cloudpickle.dumps((function, args)))
        command = [sys.executable, "-c", OUTER, "-c", INNER, str(call), str(self._value)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def result(self) -> Any:
        """Wait for the call's value."""
        if self._process.wait() != 0:
            raise SystemExit("The bare pair of processes failed.")
        return cloudpickle.loads(self._value.read_bytes())
