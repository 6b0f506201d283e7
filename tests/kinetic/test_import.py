"""Import of `kinetic`, outside of a job and inside one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kinetic
import kinetic_payload
from kinetic.jobs.runner import modules_in_jobs

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


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip with the light part of kinetic, and kinetic_payload beside it: no third-party package."""
    path = tmp_path_factory.mktemp("bundle") / "runner.zip"
    payload = Path(kinetic_payload.__file__).parent
    with zipfile.ZipFile(path, "w") as archive:
        for file in payload.rglob("*.py"):
            archive.write(file, f"kinetic_payload/{file.relative_to(payload).as_posix()}")
        for name, source in modules_in_jobs().items():
            archive.writestr(name, source)
    return path


def in_the_bundle(bundle: Path, code: str, *, inside: bool = True) -> str:
    # -S as well as -I: packages that are installed here must not help.
    start = f"import sys; sys.path += [{str(bundle)!r}, {str(bundle / 'light')!r}]\n"
    job = {"KINETIC_JOB_ID": "cpu-f-20260101-000000-abcdef0"} if inside else {}
    return run_python(start + code, "-I", "-S", **job)


def test_a_users_module_runs_in_a_job_with_nothing_but_the_bundle(bundle: Path) -> None:
    out = in_the_bundle(
        bundle,
        "import kinetic\n"
        "from kinetic import Data, JobHandle, JobStatus, KineticError, attach, list_jobs, run\n"
        "DATA = Data('./not/there')\n"
        "@run('tpu-v5litepod-4', volumes={'/data': DATA}, timeout=3)\n"
        "def double(x: int) -> int:\n"
        "    return 2 * x\n"
        "class T:\n"
        "    @kinetic.run('cpu')\n"
        "    def m(self, x): return x + 1\n"
        "print(double(4), T().m(1), JobStatus.FAILED.terminal, kinetic.__version__)\n"
        "assert not isinstance(3, JobHandle)\n",
    )

    assert out.split() == ["8", "2", "True", kinetic.__version__]


def test_functions_of_the_client_are_refused_inside_a_job(bundle: Path) -> None:
    out = in_the_bundle(
        bundle,
        "import kinetic\n"
        "for use in (lambda: kinetic.attach('x'), lambda: kinetic.list_jobs(),\n"
        "            lambda: kinetic.JobHandle('x'), lambda: kinetic.run()(len).run_async()):\n"
        "    try: use()\n"
        "    except kinetic.NotInsideJobError as error: print(error.message)\n",
    )

    assert len(out.splitlines()) == 4


def test_a_missing_part_is_a_missing_module_outside_a_job(bundle: Path) -> None:
    out = in_the_bundle(
        bundle,
        "import kinetic\n"
        "try: kinetic.attach\n"
        "except ModuleNotFoundError as error: print(error.name)\n",
        inside=False,
    )

    assert out.strip().startswith("kinetic.")
