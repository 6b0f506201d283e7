"""Import of `kinetic`, outside of a job and inside one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kinetic

HEAVY = ("google", "msgspec", "psutil", "rich", "cloudpickle", "kubernetes", "asyncio")


def run_python(code: str, *options: str, **environ: str) -> str:
    env = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 - for a child
        if not name.startswith("KINETIC_")
    }
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**env, **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import kinetic",
        "from kinetic import run, Data, JobStatus, KineticError, JobHandle",
        "import kinetic\n@kinetic.run('cpu', backend='local')\ndef f(): ...",
    ],
)
def test_heavy_modules_are_not_loaded_by_an_import_or_a_decorator(code: str) -> None:
    loaded = run_python(f"{code}\nimport sys; print(*sys.modules)").split()

    assert [name for name in HEAVY if name in loaded] == []


def test_an_import_configures_nothing() -> None:
    run_python(
        "import logging, os, signal, warnings\n"
        "def state():\n"
        "    return (list(logging.root.handlers), logging.root.level, dict(os.environ),\n"
        "            signal.getsignal(signal.SIGINT), list(warnings.filters))\n"
        "before = state()\n"
        "import kinetic; kinetic.run; kinetic.attach\n"
        "assert state() == before\n"
        "logger = logging.getLogger('kinetic')\n"
        "assert [type(h) for h in logger.handlers] == [logging.NullHandler]\n"
        "assert logger.level == logging.NOTSET and logger.propagate\n"
    )


def test_every_public_name_exists_and_is_listed() -> None:
    assert set(kinetic.__all__) <= set(dir(kinetic))
    for name in kinetic.__all__:
        assert getattr(kinetic, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'run_everything'"):
        kinetic.run_everything


def test_the_wire_version_is_that_of_the_payload_on_a_line_of_its_own() -> None:
    from kinetic._wire import WIRE_VERSION
    from kinetic_payload.layout import WIRE_LINE
    from kinetic_payload.layout import WIRE_VERSION as PAYLOADS

    text = (Path(kinetic.__file__).parent / "_wire.py").read_text()

    assert WIRE_LINE in text.splitlines()
    assert WIRE_VERSION == PAYLOADS


def test_a_missing_part_is_a_missing_module_outside_a_job() -> None:
    out = run_python(
        "import sys\n"
        "sys.modules['kinetic.jobs.discover'] = None\n"
        "import kinetic\n"
        "try: kinetic.attach\n"
        "except ModuleNotFoundError as error: print(error.name)\n"
    )

    assert out.strip() == "kinetic.jobs.discover"
