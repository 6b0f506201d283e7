from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from wheel_maker import make_wheel

from kinetic_images.builders.layers.conversion import write_layer
from kinetic_images.builders.layers.workers import Workers
from kinetic_images.errors import BuildError, InvalidWheelError
from kinetic_payload.processes import living_processes
from kinetic_payload.threads import Stopped, parallel_map, stoppable

KILLED_PARENT = """
import os, sys
from pathlib import Path
from kinetic_images.builders.layers.workers import Workers
with Workers(1) as workers:
    workers.convert([Path(sys.argv[1])], sys.argv[2], bytecode=True)
    print("done", flush=True)
    sys.stdin.read()
"""


def children() -> set[int]:
    return {pid for pid, found in living_processes().items() if found.parent == os.getpid()}


def an_output(folder: Path, name: str = "layer") -> str:
    (folder / name).touch()
    return str(folder / name)


def slow_wheel(folder: Path) -> Path:
    module = "\n".join(f"def f{number}(x):\n    return [x, {number}]" for number in range(10_000))
    return make_wheel(folder, {f"demo{each}.py": module for each in range(8)}, name="slow")


def test_a_worker_writes_the_same_layer_as_this_process(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path / f"{number}", name=f"p{number}") for number in range(6)]
    before = children()

    with Workers(2) as workers:
        blobs = parallel_map(
            lambda path: workers.convert([path], an_output(tmp_path, path.name), bytecode=True),
            wheels,
            threads=4,
        )
        assert len(children() - before) <= 2

    assert children() == before
    for path, blob in zip(wheels, blobs, strict=True):
        stream = io.BytesIO()
        assert write_layer([path], stream, bytecode=True) == blob
        assert (tmp_path / path.name).read_bytes() == stream.getvalue()


def test_an_invalid_wheel_is_an_error_and_the_worker_goes_on(tmp_path: Path) -> None:
    bad = make_wheel(tmp_path, wheel=None, name="bad")

    with Workers(1) as workers:
        with pytest.raises(InvalidWheelError, match=r"bad-1\.0.*no WHEEL") as error:
            workers.convert([bad], an_output(tmp_path), bytecode=False)
        assert error.value.hint
        workers.convert([make_wheel(tmp_path)], an_output(tmp_path), bytecode=False)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the memory of a process")
@pytest.mark.parametrize(
    "contents",
    [
        {"record": "".join(f"{number},,\n" for number in range(1_500_000))},
        {"extra": {"demo-1.0.dist-info/WHEEL": bytes(310_000_000)}},
        {"files": {"demo.py": "x = [" + "0," * 500_000 + "]"}},
    ],
    ids=["record", "metadata", "literals"],
)
def test_the_memory_of_a_worker_is_limited_for_any_wheel(
    tmp_path: Path, contents: dict[str, Any]
) -> None:
    wheel, before = make_wheel(tmp_path, **contents), children()

    with Workers(1) as workers:
        with suppress(InvalidWheelError):
            workers.convert([wheel], an_output(tmp_path), bytecode=True)
        (worker,) = children() - before
        peak = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{worker}/status").read_text())

    assert peak is not None
    assert int(peak[1]) < 300_000


def test_a_module_that_hangs_the_compiler_ends_the_worker_with_an_error(tmp_path: Path) -> None:
    # The compiler copies each `finally` to two places, so the time doubles with each level.
    levels = (" " * n + "try: pass\n" + " " * n + "finally:\n" for n in range(18))
    wheel = make_wheel(tmp_path, {"demo.py": "".join(levels) + " " * 18 + "lambda: 0\n"})

    with Workers(1, seconds=1) as workers:
        with pytest.raises(InvalidWheelError, match=r"demo-1\.0-py3.* takes too much time"):
            workers.convert([wheel], an_output(tmp_path), bytecode=True)
        workers.convert([make_wheel(tmp_path, name="next")], an_output(tmp_path), bytecode=True)


def test_a_file_that_cannot_be_written_or_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    with Workers(1) as workers:
        with pytest.raises(BuildError, match="no room for the layer /dev/full"):
            workers.convert([make_wheel(tmp_path)], "/dev/full", bytecode=False)
        with pytest.raises(BuildError, match=r"No such file.*gone\.whl"):
            workers.convert([tmp_path / "gone.whl"], an_output(tmp_path), bytecode=False)


def test_a_worker_that_is_killed_is_an_error_and_another_one_is_started(tmp_path: Path) -> None:
    before = children()

    with Workers(1) as workers:
        workers.convert([make_wheel(tmp_path)], an_output(tmp_path), bytecode=False)
        (worker,) = children() - before
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(BuildError, match="exit code -9"):
            workers.convert([make_wheel(tmp_path)], an_output(tmp_path), bytecode=False)
        workers.convert([make_wheel(tmp_path)], an_output(tmp_path), bytecode=False)


def test_a_conversion_that_is_stopped_ends_early(tmp_path: Path) -> None:
    wheel, over = slow_wheel(tmp_path), threading.Event()
    threading.Timer(0.3, over.set).start()

    with Workers(1) as workers, stoppable(over.is_set), pytest.raises(Stopped):
        workers.convert([wheel], an_output(tmp_path), bytecode=True)


def test_workers_end_with_their_parent_even_if_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_PARENT, make_wheel(tmp_path), an_output(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        workers = {p for p, found in living_processes().items() if found.parent == parent.pid}
        parent.kill()

    until = time.monotonic() + 10
    while workers & set(living_processes()) and time.monotonic() < until:
        time.sleep(0.02)  # noqa: TID251
    assert workers
    assert not workers & set(living_processes())


def test_a_worker_does_not_import_from_the_folder_of_the_users_script(tmp_path: Path) -> None:
    (tmp_path / "zipfile.py").write_text("raise SystemExit('shadowed')")
    sys.path.insert(0, str(tmp_path))
    try:
        with Workers(1) as workers:
            workers.convert([make_wheel(tmp_path)], an_output(tmp_path), bytecode=True)
    finally:
        sys.path.remove(str(tmp_path))
