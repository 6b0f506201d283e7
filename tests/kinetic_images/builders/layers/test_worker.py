"""A process for each layer: its limits, its errors, and its end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wheel_maker import make_wheel

from kinetic_images.builders.layers.conversion import write_layer
from kinetic_images.builders.layers.worker import convert
from kinetic_images.errors import BuildError, InvalidWheelError
from kinetic_payload.processes import living_processes
from kinetic_payload.threads import Stopped, stoppable

PARENT = """
import sys
from pathlib import Path
from kinetic_images.builders.layers.worker import convert
convert([Path(sys.argv[1])], sys.argv[2], bytecode=True)
"""
MEASURED = """
import resource, sys
from contextlib import suppress
from pathlib import Path
from kinetic_images.builders.layers.worker import convert
from kinetic_images.errors import InvalidWheelError
with suppress(InvalidWheelError):
    convert([Path(sys.argv[1])], sys.argv[2], bytecode=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def children(parent: int) -> set[int]:
    return {pid for pid, found in living_processes().items() if found.parent == parent}


def a_child(parent: int) -> int:
    until = time.monotonic() + 60
    while not children(parent):
        assert time.monotonic() < until
        time.sleep(0.01)  # noqa: TID251
    return children(parent).pop()


def an_output(folder: Path) -> str:
    (folder / "layer").touch()
    return str(folder / "layer")


def slow_wheel(folder: Path) -> Path:
    module = "\n".join(f"def f{number}(x):\n    return [x, {number}]" for number in range(10_000))
    return make_wheel(folder, {f"demo{each}.py": module for each in range(8)}, name="slow")


def test_a_worker_writes_the_same_layer_as_this_process(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, name="demo")]
    blob = convert(wheels, an_output(tmp_path), bytecode=True)
    stream = io.BytesIO()
    assert write_layer(wheels, stream, bytecode=True) == blob
    assert (tmp_path / "layer").read_bytes() == stream.getvalue()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the memory of a process")
@pytest.mark.parametrize(
    "contents",
    [
        lambda: {"record": "".join(f"{number},,\n" for number in range(1_500_000))},
        lambda: {"files": {"demo.py": "x = [" + "0," * 500_000 + "]"}},
    ],
    ids=["record", "literals"],
)
def test_the_memory_of_a_worker_is_limited_for_any_wheel(
    tmp_path: Path, contents: Callable[[], dict[str, Any]]
) -> None:
    wheel = make_wheel(tmp_path, **contents())
    command = [sys.executable, "-c", MEASURED, wheel, an_output(tmp_path)]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert int(found.stdout) < 300_000


def test_a_module_that_hangs_the_compiler_ends_the_worker_with_an_error(tmp_path: Path) -> None:
    # The compiler copies each `finally` to two places, so the time doubles with each level.
    levels = (" " * n + "try: pass\n" + " " * n + "finally:\n" for n in range(18))
    wheel = make_wheel(tmp_path, {"demo.py": "".join(levels) + " " * 18 + "lambda: 0\n"})
    with pytest.raises(InvalidWheelError, match=r"demo-1\.0-py3.* takes too much time"):
        convert([wheel], an_output(tmp_path), bytecode=True, seconds=1)


def test_a_file_that_cannot_be_written_or_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"No space left on device \(/dev/full\)"):
        convert([make_wheel(tmp_path)], "/dev/full", bytecode=False)
    with pytest.raises(BuildError, match=r"No such file.*gone\.whl"):
        convert([tmp_path / "gone.whl"], an_output(tmp_path), bytecode=False)


def test_a_worker_that_is_killed_is_an_error(tmp_path: Path) -> None:
    wheel, output = slow_wheel(tmp_path), an_output(tmp_path)
    before = children(os.getpid())

    def kill() -> None:
        while not (started := children(os.getpid()) - before):
            time.sleep(0.01)  # noqa: TID251
        os.kill(started.pop(), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(BuildError, match="exit code -9"):
        convert([wheel], output, bytecode=True)
    killer.join()


def test_a_conversion_that_is_stopped_ends_early(tmp_path: Path) -> None:
    wheel, over = slow_wheel(tmp_path), threading.Event()
    before = children(os.getpid())
    threading.Timer(0.3, over.set).start()
    with stoppable(over.is_set), pytest.raises(Stopped):
        convert([wheel], an_output(tmp_path), bytecode=True)
    assert children(os.getpid()) == before


def test_a_worker_ends_with_its_parent_even_if_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, slow_wheel(tmp_path), an_output(tmp_path)]
    with subprocess.Popen(command) as parent:
        worker = a_child(parent.pid)
        parent.kill()
    until = time.monotonic() + 60
    while worker in living_processes() and time.monotonic() < until:
        time.sleep(0.02)  # noqa: TID251
    assert worker not in living_processes()


def test_a_worker_does_not_import_from_the_folder_of_the_users_script(tmp_path: Path) -> None:
    (tmp_path / "zipfile.py").write_text("raise SystemExit('shadowed')")
    sys.path.insert(0, str(tmp_path))
    try:
        convert([make_wheel(tmp_path)], an_output(tmp_path), bytecode=True)
    finally:
        sys.path.remove(str(tmp_path))
