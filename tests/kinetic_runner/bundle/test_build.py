from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_runner.bundle import SIZE_LIMIT, bundle_for


@pytest.fixture(scope="module")
def for_clusters(bundle: Path, light: dict[str, bytes]) -> Path:
    return bundle_for(bundle.parent, light, bytecode=False)


class Job:
    """A job that is one call, and its runs from a bundle."""

    def __init__(self, folder: Path, store: Callable[[object], str]) -> None:
        self.folder = folder
        self.store = store

    def run(self, function: object, bundle: Path | str, python=sys.executable, *flags, cwd=None):
        command = [python, "-u", *flags, bundle, "--store", self.folder / "store", "--job", "job"]
        command += ["--record-digest", self.store(function)]
        command += ["--workspace", self.folder / "workspace"]
        return subprocess.run(
            command, capture_output=True, env={"PATH": os.defpath}, cwd=cwd, check=False
        )

    @property
    def outcome(self) -> dict:
        return json.loads((self.folder / "store/job/attempts/1/host-0.json").read_bytes())


@pytest.fixture
def job(tmp_path: Path, header_of, stored_call) -> Job:
    return Job(tmp_path, lambda function: stored_call(tmp_path / "store", header_of(), function))


def test_the_bundle_is_the_same_in_every_process(bundle, light):
    # Another process has another hash seed, and other things in memory.
    code = (
        "import sys; from kinetic_runner.bundle import *;"
        f"kept = compile({light['light/constants.py']!r}, '', 'exec');"
        f"print(bundle_digest(build_bundle({light!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": "1"}
    )

    assert done.stdout.decode().strip() == hashlib.sha256(bundle.read_bytes()).hexdigest()


def test_a_bundle_holds_what_runs_and_in_one_form_bytecode_beside_it(bundle, for_clusters, light):
    with zipfile.ZipFile(bundle) as whole, zipfile.ZipFile(for_clusters) as small:
        names = whole.namelist()
        assert {"__main__.py", "kinetic_runner/child/pipeline.py", *light} <= set(names)
        assert {name for name in names if name.endswith(".pyc")} == {
            f"{name}c" for name in names if name.endswith(".py")
        }
        assert names == sorted(names)
        assert small.namelist() == [name for name in names if not name.endswith(".pyc")]
        assert all(whole.read(name) == small.read(name) for name in small.namelist())


def test_only_a_bundle_without_bytecode_has_a_limit_and_it_leaves_room_to_grow(
    bundle, for_clusters, light
):
    large = {**light, "light/kinetic/noise": random.Random(1).randbytes(SIZE_LIMIT)}

    assert for_clusters.stat().st_size <= SIZE_LIMIT - 100 * 1024
    assert bundle.stat().st_size > SIZE_LIMIT
    # Nor is the file of other ingredients taken from the cache.
    with pytest.raises(ValueError, match=f"bytes; the limit is {SIZE_LIMIT}"):
        bundle_for(for_clusters.parent, large, bytecode=False)


@pytest.mark.parametrize("form", ["bundle", "for_clusters"])
def test_a_call_runs_from_the_bundle_alone(request, form, job):
    bundle = request.getfixturevalue(form)

    def where():
        import sys

        import kinetic_payload
        import kinetic_runner.child.pipeline

        print(kinetic_payload.__file__)
        print(kinetic_runner.child.pipeline.__file__)
        print(sys.path[0], *sys.path[-2:], sep="\n")

    done = job.run(where, bundle)

    payload, pipeline, first, *last = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr
    assert payload.startswith(f"{bundle}/kinetic_payload")
    assert pipeline.startswith(f"{bundle}/kinetic_runner")
    assert first != str(bundle)
    assert last == [str(bundle), f"{bundle}/light"]


def test_a_relative_path_and_options_of_the_interpreter_reach_the_child(bundle, job):
    def later():
        import sys

        import kinetic_payload.calls.assertions  # noqa: F401  # not imported before

        print(sys.flags.dont_write_bytecode, sys._xoptions)

    done = job.run(later, bundle.name, sys.executable, "-B", "-X", "kn=1", cwd=bundle.parent)

    assert done.stdout == b"1 {'kn': '1'}\n", done.stderr


def test_bytecode_is_used_and_tracebacks_still_show_the_source(bundle):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kinetic_runner.task import Task\n"
        "print(Task.decode.__func__.__code__.co_filename, flush=True)\n"
        "try: Task.decode('nonsense')\n"
        "except ValueError: import traceback; traceback.print_exc()"
    )

    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(bundle)], capture_output=True, text=True, check=False
    )

    # If it were compiled now, it would have the name of this very file.
    assert done.stdout == "remote_runner.py/kinetic_runner/task.py\n"
    assert "json.loads(text)" in done.stderr


def test_a_missing_cloudpickle_is_named_in_the_log_and_in_the_outcome(bundle, job, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)

    done = job.run(print, bundle, tmp_path / "bare/bin/python")

    assert done.returncode == 2
    assert "cloudpickle" in job.outcome["message"]
    assert b"add cloudpickle" in done.stdout


def test_a_python_that_is_too_old_gets_a_sentence(bundle, tmp_path):
    start = zipfile.ZipFile(bundle).read("__main__.py").decode()
    (tmp_path / "old.py").write_text(start.replace("(3, 11)", "(99, 0)"))

    done = subprocess.run(
        [sys.executable, str(tmp_path / "old.py")], capture_output=True, check=False
    )

    assert done.returncode == 2
    assert b"needs Python" in done.stderr
    assert b"Traceback" not in done.stderr


def test_the_cache_makes_one_file_for_the_same_ingredients(bundle, for_clusters, light):
    written = bundle.stat().st_mtime_ns

    assert bundle_for(bundle.parent, dict(reversed(light.items()))) == bundle
    assert bundle.stat().st_mtime_ns == written
    assert {*bundle.parent.iterdir()} == {bundle, for_clusters}


def test_processes_and_threads_that_ask_at_once_get_one_whole_file(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kinetic_runner.bundle import *;"
        "from concurrent.futures import ThreadPoolExecutor as Pool;"
        "ask = lambda _: bundle_digest(bundle_for(Path(sys.argv[1]), bytecode=False).read_bytes());"
        "print({*Pool(4).map(ask, range(4))})"
    )
    asking = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]

    (found,) = {process.communicate()[0].decode() for process in asking}
    (path,) = tmp_path.iterdir()
    assert found.strip() == str({hashlib.sha256(path.read_bytes()).hexdigest()})
