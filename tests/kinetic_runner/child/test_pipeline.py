"""The pipeline takes its process over, so each run has one, as it has in a job."""

import base64
import hashlib
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import kinetic_payload
import kinetic_runner
from kinetic_payload.calls import rebuild
from kinetic_payload.calls.call import CallHeader
from kinetic_payload.calls.unpickle import python_version
from kinetic_payload.data.references import DataRef, data_path
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.project.context import ensure_context
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_runner.child.debugger import listening_in
from kinetic_runner.data import mounts
from kinetic_runner.task import Task

JOB = "cpu-train-20260101-000000-abcdef0"
SOURCES = [str(Path(str(p.__file__)).parents[1]) for p in (kinetic_runner, kinetic_payload)]
DRIVER = f"""
import sys; sys.path[:0] = {SOURCES!r}
import json
from kinetic_payload.records.encode import encode
from kinetic_runner.child import pipeline
from kinetic_runner.task import Task
told = open(sys.argv[2], "a", buffering=1)
outcome = pipeline.run(Task.decode(sys.argv[1]), lambda message: print(json.dumps(message), file=told))
told.write(encode(outcome).decode() + "\\n")
"""


class By:
    """Pickles as what it names: the tests need not import the project."""

    def __init__(self, make: Any, *args: Any) -> None:
        self.make, self.args = make, args

    def __reduce__(self) -> Any:
        return self.make, self.args


def function(module: str, name: str) -> By:
    return By(rebuild.resolve, module, name, 0)


@dataclass
class Run:
    outcome: dict[str, Any]
    phases: list[str]
    warnings: list[str]
    output: str

    @property
    def value(self) -> Any:
        return pickle.loads(base64.b64decode(self.outcome["value"]["inline"]))


@dataclass
class Job:
    """A small job over a real store, one step before its runner."""

    folder: Path
    code: str = "def train(*args): return args\n"
    args: tuple[Any, ...] = ()
    header: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    before: str = ""
    """Code for the runner's process to begin with."""

    def __post_init__(self) -> None:
        self.store: Store = open_store(parse_location(str(self.folder / "store")))
        self.project = self.folder / "project"
        self.project.mkdir()
        self.told = self.folder / "told"

    @property
    def space(self) -> Path:
        return self.folder / "work"

    def submit(self) -> Task:
        (self.project / "train.py").write_text(self.code)
        tree = tree_of(self.project)
        ensure_context(self.store, tree)
        header = CallHeader(
            python=python_version(),
            cloudpickle=cloudpickle.__version__,
            kinetic="0.1.0",
            function="train",
            module="train",
            context_digest=tree.digest,
            paths=("",),
            cwd="",
            main=None,
            main_kind="interactive",
        )
        header = replace(header, **self.header)
        payload = (
            header.encode() + b"\n" + pickle.dumps((function("train", "train"), self.args, {}))
        )
        self.store.write(JobObjects(JOB).payload, payload)
        values: dict[str, Any] = {
            "store": str(self.folder / "store"),
            "job_id": JOB,
            "attempt": 1,
            "host": 0,
            "hosts": 1,
            "payload_digest": hashlib.sha256(payload).hexdigest(),
            "context_digest": tree.digest,
            "workspace": str(self.space),
        }
        return Task(**{**values, **self.task})

    def start(self, task: Task | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-u",
                "-c",
                self.before + DRIVER,
                (task or self.submit()).encode(),
                str(self.told),
            ],
            env={**os.environ, **self.env},  # noqa: TID251 - a child of the tests' own environment
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> Run:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        *messages, outcome = [json.loads(line) for line in self.told.read_text().splitlines()]
        phases = [message["phase"] for message in messages if "phase" in message]
        return Run(outcome, phases, [m["warning"] for m in messages if "warning" in m], output)

    def run(self) -> Run:
        return self.finish(self.start())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_call_passes_every_phase_and_its_value_comes_home(job: Job) -> None:
    job.code = "def train(lr, steps):\n    print('training')\n    return {'loss': lr * steps}\n"
    job.args = (0.5, 4)

    run = job.run()

    assert run.outcome["succeeded"]
    assert (run.outcome["reason"], run.outcome["exit_code"]) == ("returned", 0)
    assert run.value == {"loss": 2.0}
    assert run.phases == (
        ["fetch", "verify", "extract", "environment", "unpickle", "data", "call", "report"]
    )
    assert set(run.outcome["phases"]) == set(run.phases)
    assert run.outcome["started_at"] <= run.outcome["finished_at"]
    assert run.output == "training\n"


def test_the_function_finds_what_it_had_at_home(job: Job) -> None:
    (job.project / "src").mkdir()
    (job.project / "src" / "helper.py").write_text("name = 'helper'")
    job.header = {
        "paths": ("src", ""),
        "cwd": "ignored/folder",
        "main": "train.py",
        "main_kind": "script",
    }
    job.code = (
        "import os, sys, helper\n"
        "def train(): return os.getcwd(), sys.path[:2], sys.argv, sys.modules['__main__'].__file__\n"
    )

    project = job.space / "project"
    assert job.run().value == (
        str(project / "ignored/folder"),
        [str(project / "src"), str(project)],
        [str(project / "train.py")],
        str(project / "train.py"),
    )


def test_a_process_pool_works_in_a_job(job: Job) -> None:
    job.code = (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "def square(n): return n * n\n"
        "def train():\n"
        "    with ProcessPoolExecutor(1, mp_context=get_context('spawn')) as pool:\n"
        "        return list(pool.map(square, [2, 3]))\n"
    )

    assert job.run().value == [4, 9]


def test_the_users_exception_is_told_as_text_and_object(job: Job) -> None:
    job.code = "def train():\n    raise ValueError('bad learning rate')\n"

    run = job.run()
    outcome = run.outcome

    assert (outcome["reason"], outcome["phase"], outcome["exit_code"]) == ("exception", "call", 1)
    assert outcome["message"] == "ValueError: bad learning rate"
    assert run.output == outcome["error"]["traceback"]
    lines = outcome["error"]["traceback"].splitlines()
    assert lines[1].endswith('project/train.py", line 2, in train')
    raised = pickle.loads(base64.b64decode(outcome["error"]["pickled"]["inline"]))
    assert repr(raised) == "ValueError('bad learning rate')"


BUSY = "Unable to initialize backend 'tpu': open(/dev/vfio/0): Device or resource busy"
JAX_WITH_A_BUSY_TPU = {
    "jax/__init__.py": "from jax._src import xla_bridge\ndef devices(): return xla_bridge.backends()\n",
    "jax/_src/__init__.py": "",
    "jax/_src/xla_bridge.py": f"def backends(): raise RuntimeError({BUSY!r})\n",
}
BUSY_BECAUSE_OF_ANOTHER_ERROR = f"""class JaxRuntimeError(RuntimeError): pass
def backends():
    try: raise JaxRuntimeError("FAILED_PRECONDITION")
    except JaxRuntimeError: raise RuntimeError({BUSY!r})
"""


@pytest.mark.parametrize("at_import", [False, True])
def test_an_accelerator_that_does_not_start_is_the_nodes_fault(job: Job, at_import: bool) -> None:
    for name, text in JAX_WITH_A_BUSY_TPU.items():
        (job.project / name).parent.mkdir(parents=True, exist_ok=True)
        (job.project / name).write_text(text)
    job.env = {"KINETIC_DEVICES": "tpu:4", "KINETIC_NODE_NAME": "node-7"}
    job.code = "import jax\n" + (
        "jax.devices()\ndef train(): pass\n" if at_import else "def train(): return jax.devices()\n"
    )

    outcome = job.run().outcome

    assert (outcome["exit_code"], outcome["reason"]) == (4, "exception")
    assert outcome["phase"] == ("unpickle" if at_import else "call")
    assert outcome["message"] == f"The accelerator of the node node-7 cannot be used: {BUSY}"


def test_a_bad_node_has_lost_no_peer_although_jax_failed_first(job: Job) -> None:
    for name, text in JAX_WITH_A_BUSY_TPU.items():
        (job.project / name).parent.mkdir(parents=True, exist_ok=True)
        (job.project / name).write_text(text)
    (job.project / "jax/_src/xla_bridge.py").write_text(BUSY_BECAUSE_OF_ANOTHER_ERROR)
    job.env = {"KINETIC_DEVICES": "tpu:4"}
    job.code = "import jax\ndef train(): return jax.devices()\n"

    outcome = job.run().outcome

    assert outcome["exit_code"] == 4
    assert "lost_peer" not in outcome


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_components_of_pathways_for_another_jax_are_an_error(job: Job) -> None:
    job.env = {"KINETIC_PATHWAYS": "jax-0.1.0", "JAX_PLATFORMS": "proxy"}

    outcome = job.run().outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("environment", 2)
    assert "Pathways runs components for JAX 0.1" in outcome["message"]


def test_an_exception_because_of_a_lost_peer_says_so(job: Job) -> None:
    job.code = (
        "class JaxRuntimeError(RuntimeError): pass\n"
        "def train():\n"
        "    try: raise JaxRuntimeError\n"
        "    except RuntimeError as error: raise RuntimeError('step failed') from error\n"
    )

    assert job.run().outcome["lost_peer"] is True
    text = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:58054"
    job.code = f"def train(): raise RuntimeError({text!r})\n"
    job.told.unlink()
    assert job.run().outcome["lost_peer"] is True
    for code in ("raise RuntimeError", "raise ConnectionResetError"):
        job.code = f"def train(): {code}\n"
        job.told.unlink()
        assert "lost_peer" not in job.run().outcome
    # A database, most likely.
    job.code = (
        "def train():\n"
        "    try: raise ConnectionResetError\n"
        "    except OSError: raise ValueError('no data')\n"
    )
    job.told.unlink()
    assert "lost_peer" not in job.run().outcome


def test_leaving_with_a_code_is_not_success(job: Job) -> None:
    job.code = "import sys\ndef train():\n    sys.exit(3)\n"

    outcome = job.run().outcome

    assert (outcome["reason"], outcome["exit_code"]) == ("exited", 1)
    assert "sys.exit(3)" in outcome["message"]


def test_a_changed_payload_is_never_unpickled(job: Job) -> None:
    task = job.submit()
    job.store.write(JobObjects(JOB).payload, b"{}\nspoiled")

    run = job.finish(job.start(task))

    assert run.phases == ["fetch", "verify"]
    assert (run.outcome["phase"], run.outcome["exit_code"]) == ("verify", 2)
    assert run.outcome["error"]["type"] == "kinetic_payload.errors.IntegrityError"


def test_a_changed_context_is_never_imported(job: Job) -> None:
    task = job.submit()
    other = job.folder / "other"
    other.mkdir()
    (other / "train.py").write_text("def train(): return 'evil'")
    with job.store.writer(context_object(str(task.context_digest))) as stream:
        tree_of(other).write(stream)

    outcome = job.finish(job.start(task)).outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("extract", 2)


def test_a_missing_payload_is_a_failure_to_fetch(job: Job) -> None:
    task = job.submit()
    job.store.delete(JobObjects(JOB).payload)

    outcome = job.finish(job.start(task)).outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("fetch", 2)
    assert outcome["message"].startswith("Kinetic could not fetch the call")


def test_a_payload_of_another_snapshot_is_refused(job: Job) -> None:
    job.header = {"context_digest": "0" * 64}

    assert job.run().outcome["phase"] == "environment"


def test_a_module_that_fails_to_import_fails_the_unpickling(job: Job) -> None:
    job.code = "import no_such_module_of_anyone\ndef train(): pass\n"

    outcome = job.run().outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("unpickle", 2)
    assert "no_such_module_of_anyone" in outcome["message"]
    assert 'train.py", line 1' in outcome["error"]["traceback"]


def test_skew_is_told_before_unpickling_and_leads_the_failure(job: Job) -> None:
    job.header = {"python": "3.99.1"}
    job.code = "raise TypeError('code() takes 18 arguments')\n"

    run = job.run()

    assert run.phases[-1] == "unpickle"
    assert "written by Python 3.99" in run.warnings[0]
    assert run.outcome["warnings"] == run.warnings
    assert run.outcome["message"].startswith(
        "Kinetic could not rebuild the call: The call was written by Python 3.99 and is read by"
    )


@pytest.mark.parametrize("where", ["raise ImportError('no _fast')", "pass"], ids=["load", "call"])
def test_what_another_platform_cannot_import_names_both(job: Job, where: str) -> None:
    job.header = {"platform": "darwin-arm64"}
    job.code = f"{where}\ndef train(): import no_such_module_of_anyone\n"

    run = job.run()
    info = run.outcome["error"]

    system = f"The call was pickled on macOS arm64 and runs on Linux {os.uname().machine}."
    assert system in run.outcome["message"] + info["traceback"]
    assert run.warnings == []


@pytest.mark.parametrize("platform", ["darwin-arm64", ""])
def test_another_platform_is_not_worth_a_word_where_nothing_fails(job: Job, platform: str) -> None:
    job.header = {"platform": platform}
    job.code = "def train(): raise ValueError('bad learning rate')\n"

    run = job.run()

    assert run.warnings == []
    assert "macOS" not in json.dumps(run.outcome)


def test_data_is_where_the_function_is_told(job: Job) -> None:
    data = job.folder / "set"
    data.mkdir()
    (data / "x.csv").write_text("1,2")
    ref = DataRef(
        key="d0",
        kind="local",
        source="./set",
        is_dir=True,
        name="set",
        digest=ensure_data(job.store, data),
    )
    job.header = {"data": (ref,)}
    job.args = (By(data_path, "d0"),)
    job.code = "from pathlib import Path\ndef train(p): return Path(p).name, (Path(p) / 'x.csv').read_text()\n"

    assert job.run().value == ("set", "1,2")


SPOILS = {
    "nothing": "",
    "its data": "(Path(p) / 'x.csv').write_text('spoiled')",
    "a mode of its data": "(Path(p) / 'x.csv').chmod(0o600)",
    "more in its data": "(Path(p) / 'more').mkdir()",
    "a link for its data": "Path(p).rename('/'.join([p, '..', 'away'])); Path(p).symlink_to('away')",
    "its archive": "(z := Path('../context.zip')).exists() and z.write_bytes(b'PK spoiled')",
    "its payload": "(z := Path('../payload.pkl')).exists() and z.write_bytes(b'spoiled')",
    "rights": "Path('locked/folder').mkdir(parents=True); Path('locked').chmod(0)",
}


@pytest.mark.parametrize("spoils", SPOILS)
def test_another_attempt_takes_over_what_is_unchanged_and_sees_nothing_else(
    job: Job, spoils: str
) -> None:
    data = job.folder / "set"
    data.mkdir()
    (data / "x.csv").write_text("1,2")
    (data / "x.csv").chmod(0o644)
    (data / "folder").mkdir()
    (data / "link").symlink_to("x.csv")
    digest = ensure_data(job.store, data)
    ref = DataRef(key="d0", kind="local", source="./set", is_dir=True, name="set", digest=digest)
    job.header, job.task = {"data": (ref,)}, {"keep_inputs": True}
    job.args = (By(data_path, "d0"),)
    job.code = (
        "import os\nfrom pathlib import Path\ndef train(p):\n"
        "    own = sorted(n for n in os.listdir() if n != '__pycache__')\n"
        "    seen = own, sorted(os.listdir(p)), (Path(p) / 'x.csv').read_text()\n"
        f"    Path('trace').touch(); Path('train.py').write_text('wrong'); {SPOILS[spoils]}\n"
        "    return [list(each) for each in seen]\n"
    )
    task = job.submit()
    first = job.finish(job.start(task))
    job.told.unlink()
    if spoils in ("nothing", "rights"):
        for info in list(job.store.list()):
            job.store.delete(info.name)

    second = job.finish(job.start(replace(task, attempt=2, keep_inputs=False)))

    assert second.value == first.value == [["train.py"], ["folder", "link", "x.csv"], list("1,2")]
    assert sorted(path.name for path in job.space.iterdir()) == ["data", "project"]


def test_data_that_is_gone_fails_its_phase_by_name(job: Job) -> None:
    ref = DataRef(key="d0", kind="local", source="./set", is_dir=True, name="set", digest="0" * 64)
    job.header = {"data": (ref,)}

    outcome = job.run().outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("data", 2)
    assert "'./set'" in outcome["message"]


@pytest.mark.skipif(mounts.why_not_private() is not None, reason="no private mounts here")
def test_a_volume_appears_at_its_path_for_the_job_alone(job: Job) -> None:
    data = job.folder / "set"
    data.mkdir()
    (data / "x.csv").write_text("1,2")
    path = f"/kinetic-volume-{os.getpid()}-{os.urandom(4).hex()}"
    ref = DataRef(
        key="d0",
        kind="local",
        source="./set",
        is_dir=True,
        name="set",
        mount=path,
        digest=ensure_data(job.store, data),
    )
    job.header, job.task = {"data": (ref,)}, {"private_mounts": True}
    # A thread from before the data arrives sees it, too.
    job.code = (
        "import threading\nfrom pathlib import Path\n"
        "ready, seen = threading.Event(), []\n"
        f"def look():\n    ready.wait(); seen.append(Path('{path}/x.csv').read_text())\n"
        "thread = threading.Thread(target=look); thread.start()\n"
        "def train():\n    ready.set(); thread.join(); return seen\n"
    )

    assert job.run().value == ["1,2"]
    assert not Path(path).exists()


def test_a_value_that_will_not_pickle_is_named(job: Job) -> None:
    job.code = "import threading\ndef train(): return {'model': [1, threading.Lock()]}\n"

    outcome = job.run().outcome

    assert (outcome["reason"], outcome["phase"], outcome["exit_code"]) == ("exception", "report", 1)
    assert "value['model'][1] is a _thread.lock" in outcome["message"]
    assert outcome["value_repr"].startswith("{'model'")


def test_a_large_value_becomes_an_object(job: Job) -> None:
    job.code = "def train(): return b'a' * 1_000_000\n"

    value = job.run().outcome["value"]

    data = job.store.read(value["name"])
    assert hashlib.sha256(data).hexdigest() == value["digest"]
    assert pickle.loads(data) == b"a" * 1_000_000


def test_only_the_leader_keeps_a_value(job: Job) -> None:
    job.task = {"host": 1, "hosts": 2}

    outcome = job.run().outcome

    assert outcome["succeeded"]
    assert "value" not in outcome


def test_the_folder_for_outputs_is_there(job: Job) -> None:
    job.env = {"KINETIC_OUTPUT_DIR": str(job.folder / "out" / "job")}
    job.code = "import os\ndef train(): return os.path.isdir(os.environ['KINETIC_OUTPUT_DIR'])\n"

    assert job.run().value is True


def test_sigterm_lets_the_function_tidy_up_and_is_reported(job: Job) -> None:
    job.code = (
        # Not `signal.pause`: a signal that comes a moment before would be waited for.
        "import time\ndef train():\n    try:\n        print('ready'); wait()\n"
        "    finally:\n        print('saved')\n"
        "def wait():\n    while True: time.sleep(0.01)\n"
    )
    process = job.start()
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)

    run = job.finish(process)

    assert run.output == "saved\n[kinetic] Stopped by SIGTERM in the phase call.\n"
    assert (run.outcome["reason"], run.outcome["exit_code"]) == ("terminated", 143)
    assert "line 4, in train" in run.outcome["error"]["traceback"]


@pytest.mark.parametrize("fails", ["", "1 / 0", "raise ValueError(b'c' * 1_000_000)"])
def test_a_forked_process_that_comes_back_writes_nothing(job: Job, fails: str) -> None:
    job.code = (
        "import os\ndef train():\n    pid = os.fork()\n"
        "    if pid: print('exit code', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        f"    else: return (b'c' * 1_000_000 {'if not ' + repr(fails) + ' else fail()'})\n"
        "    return b'p' * 1_000_000\n"
        f"def fail():\n    {fails or 'pass'}\n"
    )

    run = job.run()

    assert pickle.loads(job.store.read(run.outcome["value"]["name"])) == b"p" * 1_000_000
    assert run.phases.count("report") == 1
    assert ("Error" in run.output) == bool(fails)
    assert run.output.endswith(f"exit code {int(bool(fails))}\n")


def test_a_process_that_is_forked_while_modules_are_imported_does_not_run_the_job(job: Job) -> None:
    job.code = (
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n"
        "def train(): print('once'); return pid\n"
    )

    run = job.run()

    assert run.outcome["succeeded"]
    assert run.output == "once\n"


def test_a_process_that_is_forked_while_the_value_is_pickled_writes_nothing(job: Job) -> None:
    job.code = (
        "import os\n"
        "class Value:\n"
        "    def __reduce__(self):\n"
        "        pid = os.fork()\n"
        "        if pid: os.waitpid(pid, 0)\n"
        "        return bytes, (b'p' * 1_000_000 if pid else b'c' * 1_000_000,)\n"
        "def train(): return Value()\n"
    )

    value = job.run().outcome["value"]

    assert pickle.loads(job.store.read(value["name"])) == b"p" * 1_000_000


@pytest.mark.parametrize(
    ("end", "known"),
    [("return 1", True), ("1 / 0", True), ("signal.signal(signal.SIGTERM, print)", False)],
)
def test_it_is_told_whether_the_end_came_before_any_stop(job: Job, end: str, known: bool) -> None:
    job.code = f"import signal\ndef train(): {end}\n"

    job.run()

    assert ('{"undisturbed": true}\n{"phase": "report"}' in job.told.read_text()) == known


@pytest.mark.parametrize("watchdog", ["alarm", "thread"])
def test_a_watchdog_that_was_not_switched_off_does_not_cost_the_value(
    job: Job, watchdog: str
) -> None:
    job.code = (
        "import _thread, signal\n"
        "seen = []\n"
        "def bark(*_): seen.append(1); raise TimeoutError('too late')\n"
        "class Value:\n"
        "    def __reduce__(self):\n"
        f"        {'signal.raise_signal(signal.SIGALRM)' if watchdog == 'alarm' else ''}\n"
        f"        {'_thread.interrupt_main()' if watchdog == 'thread' else ''}\n"
        "        return bytes, (b'barked' if seen else b'quiet',)\n"
        "def train():\n"
        "    signal.signal(signal.SIGALRM, bark)\n"
        "    return Value()\n"
    )

    assert job.run().value == (b"barked" if watchdog == "alarm" else b"quiet")


@pytest.mark.parametrize("end", ["sys.exit(3)", "1 / 0"])
def test_how_a_function_failed_is_on_its_way_once_it_has_failed(job: Job, end: str) -> None:
    job.code = f"import sys\ndef train(): {end}\n"

    assert job.run().phases[-2:] == ["call", "report"]


def test_a_missing_debugger_fails_the_environment_with_advice(job: Job) -> None:
    job.task, job.before = {"debug_port": 0}, "import sys; sys.modules['debugpy'] = None\n"

    outcome = job.run().outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("environment", 2)
    assert "debugpy is not installed" in outcome["message"]
    assert "requirements" in outcome["message"]


@pytest.mark.skipif(importlib.util.find_spec("debugpy") is None, reason="debugpy is an extra")
def test_waiting_for_a_debugger_ends_when_told_to_stop(job: Job) -> None:
    job.task = {"debug_port": 0}
    process = job.start()
    assert process.stdout is not None
    # debugpy itself may warn before it listens.
    assert any(listening_in(line) for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)

    run = job.finish(process)

    assert (run.outcome["reason"], run.outcome["exit_code"]) == ("terminated", 143)
    assert "call" not in run.phases


@pytest.mark.parametrize(("hosts", "joined"), [(2, [["127.0.0.1:9", 2, 0]]), (1, [])])
def test_importing_jax_joins_the_hosts_of_a_slice(job: Job, hosts: int, joined: Any) -> None:
    (job.project / "jax").mkdir()
    (job.project / "jax" / "__init__.py").write_text("from jax import distributed\n")
    (job.project / "jax" / "distributed.py").write_text(
        "calls = []\ndef is_initialized(): return bool(calls)\n"
        "def initialize(coordinator_address, num_processes, process_id, **more):\n"
        "    calls.append([coordinator_address, num_processes, process_id])\n"
    )
    job.task, job.env = {"hosts": hosts}, {"KINETIC_COORDINATOR_ADDRESS": "127.0.0.1:9"}
    job.code = "import jax\ndef train(): return jax.distributed.calls\n"

    assert job.run().value == joined


@pytest.mark.parametrize("at_import", [False, True])
def test_a_host_that_cannot_join_may_have_lost_a_peer(job: Job, at_import: bool) -> None:
    (job.project / "jax").mkdir()
    (job.project / "jax" / "__init__.py").write_text("from jax import distributed\n")
    (job.project / "jax" / "distributed.py").write_text(
        "def initialize(**more): raise RuntimeError('DEADLINE_EXCEEDED')\n"
    )
    job.task, job.env = {"hosts": 2}, {"KINETIC_COORDINATOR_ADDRESS": "127.0.0.1:9"}
    job.code = "import jax\ndef train(): pass\n" if at_import else "def train():\n    import jax\n"

    outcome = job.run().outcome

    assert (outcome["exit_code"], outcome["reason"]) == (1, "exception")
    assert outcome["lost_peer"] is True
    assert "could not join" in outcome["message"]
