from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import sysconfig
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import pytest

from kinetic_payload.calls.call import CallHeader
from kinetic_runner.bundle import SIZE_LIMIT, build_bundle, bundle_for
from kinetic_runner.bundle.build import _LEFT_OUT, slim

LIGHT = {"light/kinetic/__init__.py": b"WHERE = __file__\n", "light/kinetic/py.typed": b""}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "remote_runner.py"
    path.write_bytes(build_bundle(LIGHT))
    return path


@pytest.fixture(scope="module")
def for_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "remote_runner.py"
    path.write_bytes(build_bundle(LIGHT, bytecode=False))
    return path


def submit(store: Path, function: object, *args: object) -> str:
    """Put a call into *store*; return the payload's digest."""
    header = CallHeader(
        python=".".join(map(str, sys.version_info[:3])),
        cloudpickle=cloudpickle.__version__,
        kinetic="0",
        function="f",
        module="__main__",
        context_digest=None,
        paths=(),
        cwd="",
        main=None,
        main_kind="interactive",
    )
    payload = header.encode() + b"\n" + cloudpickle.dumps((function, args, {}))
    (store / "job").mkdir(parents=True)
    (store / "job/payload.pkl").write_bytes(payload)
    return hashlib.sha256(payload).hexdigest()


def run(bundle: Path | str, store: Path, digest: str, *, python=sys.executable, **options):
    command = [python, "-u", str(bundle), "--store", str(store), "--job", "job"]
    command += ["--payload-digest", digest, "--workspace", str(store.parent / "workspace")]
    environment = {"PATH": os.defpath, **options.pop("env", {})}
    return subprocess.run(command, capture_output=True, env=environment, check=False, **options)


def outcome_in(store: Path) -> dict:
    return json.loads((store / "job/attempts/1/host-0.json").read_bytes())


def test_the_bundle_is_the_same_in_every_process():
    # Slices are constants from Python 3.14 on, and sets have another order with another seed.
    source = (
        "A = {1, 'b', None}; B = A in {2.5, 'b'}; C = 'xyz'[1:2] + 'a constant'; D = 1 << 70, ()"
    )
    code = (
        f"import sys; from kinetic_runner.bundle import *; extra = {{'light/x.py': {source!r}.encode()}};"
        "print(*(bundle_digest(build_bundle(extra, bytecode=b)) for b in (True, False)))"
    )
    # What else a process has in memory, and its hash seed, must not show.
    digests = {
        subprocess.run(
            [sys.executable, "-c", f"{first}; {code}"],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed, first in (
            ("1", "pass"),
            ("2", "import kinetic_runner.parent.main, json, decimal"),
            ("3", f"import sys; sys.intern('a constant'); kept = compile({source!r}, '', 'exec')"),
        )
    }

    assert len(digests) == 1


def test_the_bundle_holds_what_runs_and_bytecode_beside_it(bundle):
    names = zipfile.ZipFile(bundle).namelist()

    assert {"__main__.py", "kinetic_runner/child/pipeline.py", *LIGHT} <= set(names)
    assert all(f"{name}c" in names for name in names if name.endswith(".py"))
    assert names == sorted(names)
    assert not [n for n in names if "testing" in n or "bundle" in n]


@pytest.mark.parametrize("name", _LEFT_OUT)
def test_what_the_bundle_leaves_out_exists_and_is_not_in_it(bundle, name):
    assert importlib.util.find_spec(name) is not None
    path = name.replace(".", "/")
    names = zipfile.ZipFile(bundle).namelist()
    assert not [n for n in names if n.startswith((f"{path}/", f"{path}."))]


def test_without_bytecode_the_bundle_fits_into_a_config_map_with_room_to_grow(bundle, for_clusters):
    names = zipfile.ZipFile(for_clusters).namelist()

    assert names == [n for n in zipfile.ZipFile(bundle).namelist() if not n.endswith(".pyc")]
    assert for_clusters.stat().st_size <= SIZE_LIMIT - 100 * 1024


def test_only_a_bundle_for_a_config_map_has_a_limit():
    large = {**LIGHT, "light/kinetic/noise": random.Random(1).randbytes(SIZE_LIMIT)}

    with pytest.raises(ValueError, match=f"bytes; the limit is {SIZE_LIMIT}"):
        build_bundle(large, bytecode=False)
    assert len(build_bundle(large)) > SIZE_LIMIT


def test_a_slim_source_does_the_same_on_the_same_lines():
    source = b'''"""Module."""
x = """kept # kept"""  # gone

class A:
    """Kept as one character."""
    y: int = 1
    """gone"""

if TYPE_CHECKING:
    from gone import (
        this,
    )

def f(a: "gone[int]", *b: int, c: str = "kept", **d: dict[str, int]) -> dict[str, int]:
    """gone,
    all of it"""
    # gone
    return "# kept"

def g(): "kept"; return 1
def h():
    """kept: without it there would be nothing"""
'''

    found = slim(source).decode().splitlines()

    assert [line for line in found if line] == [
        'x = """kept # kept"""', "class A:", "    '.'", "    y: int = 1",
        "pass",
        'def f(a, *b, c = "kept", **d) :', '    return "# kept"', 'def g(): "kept"; return 1', "def h():",
        '    """kept: without it there would be nothing"""',
    ]  # fmt: skip
    assert found.index('    return "# kept"') == source.decode().splitlines().index(
        '    return "# kept"'
    )
    compile(slim(source), "slim", "exec")


@pytest.mark.parametrize("form", ["bundle", "for_clusters"])
def test_a_call_runs_from_the_bundle_alone(request, form, tmp_path):
    bundle = request.getfixturevalue(form)

    def where():
        import sys

        import kinetic_payload
        import kinetic_runner.child.pipeline

        print(kinetic_payload.__file__)
        print(kinetic_runner.child.pipeline.__file__)
        print(sys.path[0], *sys.path[-2:], sep="\n")

    done = run(bundle, tmp_path / "store", submit(tmp_path / "store", where))

    payload, pipeline, first, *last = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr
    assert payload.startswith(f"{bundle}/kinetic_payload")
    assert pipeline.startswith(f"{bundle}/kinetic_runner")
    assert first != str(bundle)
    assert last == [str(bundle), f"{bundle}/light"]


def test_a_relative_path_is_enough_although_the_folder_changes(bundle, tmp_path):
    def later():
        import kinetic_payload.calls.assertions  # noqa: F401  # not imported before

    done = run(
        bundle.name, tmp_path / "store", submit(tmp_path / "store", later), cwd=bundle.parent
    )

    assert done.returncode == 0, (done.stdout, done.stderr)


def test_bytecode_is_used_and_tracebacks_still_show_the_source(bundle, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kinetic_runner.task import Task\n"
        "print(Task.decode.__func__.__code__.co_filename, flush=True)\n"
        "try: Task.decode('nonsense')\n"
        "except ValueError: import traceback; traceback.print_exc()"
    )

    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(bundle)],
        capture_output=True,
        text=True,
        check=False,
    )

    # Compiled here it would have the name of this very file.
    assert done.stdout == "remote_runner.py/kinetic_runner/task.py\n"
    assert "json.loads(text)" in done.stderr


def test_a_missing_cloudpickle_is_said_in_words_and_in_the_outcome(bundle, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    store = tmp_path / "store"

    done = run(bundle, store, submit(store, len, "abc"), python=str(tmp_path / "bare/bin/python"))

    assert done.returncode == 2
    assert "cloudpickle" in outcome_in(store)["message"]
    assert b"add cloudpickle" in done.stdout


def test_an_old_python_gets_a_sentence(bundle, tmp_path):
    start = zipfile.ZipFile(bundle).read("__main__.py").decode()
    (tmp_path / "old.py").write_text(start.replace("(3, 11)", "(99, 0)"))

    done = subprocess.run(
        [sys.executable, str(tmp_path / "old.py")], capture_output=True, check=False
    )

    assert done.returncode == 2
    assert b"needs Python" in done.stderr
    assert b"Traceback" not in done.stderr


def test_the_cache_compiles_once_and_follows_its_ingredients(bundle, for_clusters, tmp_path):
    first = bundle_for(tmp_path / "cache", LIGHT)
    written = first.stat().st_mtime_ns
    again = bundle_for(tmp_path / "cache", dict(reversed(LIGHT.items())))
    other = bundle_for(tmp_path / "cache", {**LIGHT, "light/kinetic/py.typed": b"x"})
    small = bundle_for(tmp_path / "cache", LIGHT, bytecode=False)

    assert again == first
    assert again.stat().st_mtime_ns == written
    assert other != first
    assert first.read_bytes() == bundle.read_bytes()
    assert small.read_bytes() == for_clusters.read_bytes()
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_processes_that_ask_at_once_get_one_whole_file(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kinetic_runner.bundle import *;"
        "print(bundle_digest(bundle_for(Path(sys.argv[1])).read_bytes()))"
    )
    asking = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(4)
    ]

    assert len({process.communicate()[0] for process in asking}) == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(sysconfig.get_platform() == "win32", reason="posix only")
def test_threads_that_ask_at_once_get_one_whole_file(bundle, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = {*pool.map(lambda _: bundle_for(tmp_path, LIGHT), range(8))}

    assert [path.name for path in tmp_path.iterdir()] == [path.name for path in found]
    assert found.pop().read_bytes() == bundle.read_bytes()


def test_the_options_of_the_interpreter_reach_the_child(bundle, tmp_path):
    def options():
        import sys

        print(sys.flags.dont_write_bytecode, sys._xoptions)

    store = tmp_path / "store"
    digest = submit(store, options)
    command = [sys.executable, "-u", "-B", "-X", "kn=1", str(bundle), "--store", str(store)]
    command += ["--job", "job", "--payload-digest", digest, "--workspace", str(tmp_path / "w")]

    done = subprocess.run(command, capture_output=True, check=False)

    assert done.stdout == b"1 {'kn': '1'}\n"
