"""A user's script in a project of 100 MB that submits, changes a line of a file, and submits again."""

import json
import sys
import time
from pathlib import Path

import kinetic
from kinetic.settings.settings import Settings


@kinetic.run(accelerator="cpu")
def nothing() -> None:
    return None


def stored() -> dict[str, int]:
    """Return the sizes of the objects of the project in the store, by name."""
    folder = Path(Settings.from_environment().home.value, "store", "contexts")
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def submit() -> float:
    began = time.perf_counter()
    handle = nothing.run_async()
    took = time.perf_counter() - began
    handle.result()
    return took


if __name__ == "__main__":
    first = submit()
    before = stored()
    changed = Path(__file__).parent / "changed.txt"
    changed.write_text(changed.read_text() + "one more line\n")
    second = submit()
    sent = {name: size for name, size in stored().items() if name not in before}
    found = {"first": first, "second": second, "objects": len(before), "bytes": sum(sent.values())}
    Path(sys.argv[1]).write_text(json.dumps(found))
