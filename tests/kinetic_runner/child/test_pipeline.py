"""Whole runs of the child. A run changes its process, so each has one of its own, as in a job."""

import base64
import hashlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.calls import rebuild
from kinetic_payload.calls.call import CallHeader
from kinetic_payload.data.references import DataRef, data_path
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.layout import RAISED, JobObjects, context_object
from kinetic_payload.project.context import ensure_context
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location
from kinetic_runner.command_line import Arguments
from kinetic_runner.task import Task

JOB = "cpu-train-20260101-000000-abcdef0"
TEXTS = [each.name for each in fields(JobRecord) if each.type == "str" and each.default is MISSING]
DRIVER = """
import json, sys
from kinetic_payload.records.encode import encode
from kinetic_runner.child import pipeline
from kinetic_runner.task import Task
reports = open(sys.argv[2], "w", buffering=1)
outcome = pipeline.run(Task.decode(sys.argv[1]), lambda message: print(json.dumps(message), file=reports))
reports.write(encode(outcome).decode() + "\\n")
"""


class By:
    """Pickles as the call `make(*args)`: the tests need not import the project."""

    def __init__(self, make: Any, *args: Any) -> None:
        self.make, self.args = make, args

    def __reduce__(self) -> Any:
        return self.make, self.args


@dataclass
class Run:
    outcome: dict[str, Any]
    reports: str
    output: str

    @property
    def value(self) -> Any:
        return pickle.loads(base64.b64decode(self.outcome["value"]["inline"]))

    @property
    def phases(self) -> list[str]:
        messages = [json.loads(line) for line in self.reports.splitlines()[:-1]]
        return [message["phase"] for message in messages if "phase" in message]


@dataclass
class Job:
    """A small job over a real store, and the runs of its child."""

    folder: Path
    header_of: Callable[..., CallHeader]
    code: str = "def train(*args): return args\n"
    args: tuple[Any, ...] = ()
    header: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    host: int = 0
    before: str = ""
    """Code that the process runs first."""

    def __post_init__(self) -> None:
        self.store = open_store(parse_location(str(self.folder / "store")))
        self.project = self.folder / "project"
        self.space = self.folder / "work"

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            (self.project / name).write_text(text)

    def add_data(self, **changes: Any) -> Path:
        """Upload a folder for the function, whose path is its only argument; return the folder."""
        data = self.folder / "set"
        data.mkdir()
        (data / "x.csv").write_text("1,2")
        digest = ensure_data(self.store, data)
        ref = DataRef(
            key="d0", kind="local", source="./set", is_dir=True, name="set", digest=digest
        )
        self.header, self.args = {"data": (replace(ref, **changes),)}, (By(data_path, "d0"),)
        return data

    def submit(self) -> Task:
        self.write({"train.py": self.code})
        tree = tree_of(self.project)
        ensure_context(self.store, tree)
        header = self.header_of(**{"context_digest": tree.digest, "paths": ("",), **self.header})
        call = By(rebuild.resolve, "train", "train", 0), self.args, {}
        payload = header.encode() + b"\n" + pickle.dumps(call)
        self.store.write(JobObjects(JOB).payload, payload)
        for host in range(1, self.record.get("hosts", 1)):
            self.store.write(JobObjects(JOB).joining(1, host), b"")
        record = {
            **dict.fromkeys(TEXTS, ""),
            "job_id": JOB,
            "payload_digest": hashlib.sha256(payload).hexdigest(),
            "context_digest": tree.digest,
            **self.record,
        }
        arguments = Arguments(
            store=str(self.folder / "store"),
            job=JOB,
            record_digest="",
            workspace=str(self.space),
        )
        return Task(arguments=arguments, record=JobRecord(**record), attempt=1, host=self.host)

    def start(self, task: Task | None = None) -> subprocess.Popen[str]:
        task = task or self.submit()
        reports = str(self.folder / "reports")
        return subprocess.Popen(
            [sys.executable, "-u", "-c", self.before + DRIVER, task.encode(), reports],
            env={**os.environ, **self.env},  # noqa: TID251 - a child of the tests' own environment
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> Run:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        reports = (self.folder / "reports").read_text()
        return Run(json.loads(reports.splitlines()[-1]), reports, output)

    def run(self, task: Task | None = None) -> Run:
        return self.finish(self.start(task))


@pytest.fixture
def job(tmp_path: Path, header_of: Callable[..., CallHeader]) -> Job:
    return Job(tmp_path, header_of)


# The function ended before any stop could reach it, which is reported before its result is.
UNDISTURBED = '{"undisturbed": true}\n{"phase": "report"}'


def test_a_call_passes_every_phase_and_its_value_is_reported(job: Job) -> None:
    job.code = "def train(lr, steps):\n    print('training')\n    return {'loss': lr * steps}\n"
    job.args = (0.5, 4)

    run = job.run()

    assert run.outcome["succeeded"]
    assert (run.outcome["reason"], run.outcome["exit_code"]) == ("returned", 0)
    assert run.value == {"loss": 2.0}
    assert run.phases == (
        ["fetch", "verify", "extract", "environment", "unpickle", "data", "call", "report"]
    )
    assert UNDISTURBED in run.reports
    assert set(run.outcome["phases"]) == set(run.phases)
    assert run.outcome["started_at"] <= run.outcome["finished_at"]
    assert run.output == "training\n"


def test_a_function_finds_its_folder_modules_arguments_and_output_folder(job: Job) -> None:
    job.write({"src/helper.py": "name = 'helper'"})
    job.header = {
        "paths": ("src", ""),
        "cwd": "ignored/folder",
        "main": "train.py",
        "main_kind": "script",
    }
    job.env = {"KINETIC_OUTPUT_DIR": str(job.folder / "out" / "job")}
    job.code = (
        "import os, sys, helper\n"
        "def train(): return (os.getcwd(), sys.path[:2], sys.argv, sys.modules['__main__'].__file__,\n"
        "    os.path.isdir(os.environ['KINETIC_OUTPUT_DIR']))\n"
    )

    project = job.space / "project"
    assert job.run().value == (
        str(project / "ignored/folder"),
        [str(project / "src"), str(project)],
        [str(project / "train.py")],
        str(project / "train.py"),
        True,
    )


def test_an_exception_of_the_function_is_reported_as_text_and_object(job: Job) -> None:
    job.code = "def train():\n    raise ValueError('bad learning rate')\n"

    run = job.run()
    outcome = run.outcome

    assert (outcome["reason"], outcome["phase"], outcome["exit_code"]) == ("exception", "call", 1)
    assert outcome["message"] == "ValueError: bad learning rate"
    text = outcome["error"]["traceback"]
    assert run.output == f"{RAISED}{len(text.splitlines())}\n{text}"
    assert UNDISTURBED in run.reports
    lines = outcome["error"]["traceback"].splitlines()
    assert lines[1].endswith('project/train.py", line 2, in train')
    raised = pickle.loads(base64.b64decode(outcome["error"]["pickled"]["inline"]))
    assert repr(raised) == "ValueError('bad learning rate')"


def spoil_payload(job: Job, _: Task) -> None:
    job.store.write(JobObjects(JOB).payload, b"{}\nspoiled")


def spoil_context(job: Job, task: Task) -> None:
    job.write({"train.py": "def train(): return 'evil'"})
    with job.store.writer(context_object(str(task.record.context_digest))) as stream:
        tree_of(job.project).write(stream)


def delete_payload(job: Job, _: Task) -> None:
    job.store.delete(JobObjects(JOB).payload)


def do_nothing(job: Job, _: Task) -> None:
    pass


@pytest.mark.parametrize(
    ("prepare", "header", "phase", "message"),
    [
        (delete_payload, {}, "fetch", "Kinetic could not fetch the call"),
        (spoil_payload, {}, "verify", "It was changed in the store"),
        (spoil_context, {}, "extract", "extract the project's files"),
        (do_nothing, {"context_digest": "0" * 64}, "environment", "another snapshot"),
        (do_nothing, {"main": "../../x"}, "environment", "outside"),
    ],
)
def test_input_that_is_missing_or_was_changed_fails_its_phase_and_is_never_used(
    job: Job,
    prepare: Callable[[Job, Task], None],
    header: dict[str, Any],
    phase: str,
    message: str,
) -> None:
    job.header = header
    task = job.submit()
    prepare(job, task)

    run = job.run(task)

    assert (run.outcome["phase"], run.phases[-1], run.outcome["exit_code"]) == (phase, phase, 2)
    assert message in run.outcome["message"] + run.output + run.outcome["error"]["message"]


def test_a_difference_of_versions_is_a_warning_and_leads_the_failure(job: Job) -> None:
    job.header = {"python": "3.99.1"}
    job.code = "import no_such_module_of_anyone\n"

    run = job.run()

    warning = run.outcome["warnings"][0]
    assert "written by Python 3.99" in warning
    assert run.reports.index(json.dumps({"warning": warning})) < run.reports.index("unpickle")
    assert (run.outcome["phase"], run.outcome["exit_code"]) == ("unpickle", 2)
    assert run.outcome["message"].startswith(f"Kinetic could not rebuild the call: {warning}")
    assert 'train.py", line 1' in run.outcome["error"]["traceback"]


def test_a_failed_import_in_the_function_names_both_platforms_if_they_differ(job: Job) -> None:
    job.header = {"platform": "darwin-arm64"}
    job.code = "def train(): import no_such_module_of_anyone\n"

    outcome = job.run().outcome

    system = f"The call was pickled on macOS arm64 and runs on Linux {os.uname().machine}."
    assert system in outcome["error"]["traceback"]
    assert not outcome["warnings"]


BUSY = "Unable to initialize backend 'tpu': open(/dev/vfio/0): Device or resource busy"
JAX_WITH_A_BUSY_TPU = {
    "jax/__init__.py": "from jax._src import xla_bridge\ndef devices(): return xla_bridge.backends()\n",
    "jax/_src/__init__.py": "",
    "jax/_src/xla_bridge.py": f"""class JaxRuntimeError(RuntimeError): pass
def backends():
    try: raise JaxRuntimeError("FAILED_PRECONDITION")
    except JaxRuntimeError: raise RuntimeError({BUSY!r})
""",
}


@pytest.mark.parametrize("at_import", [False, True])
def test_an_accelerator_that_does_not_start_is_the_nodes_fault(job: Job, at_import: bool) -> None:
    job.write(JAX_WITH_A_BUSY_TPU)
    job.env = {"KINETIC_DEVICES": "tpu:4", "KINETIC_NODE_NAME": "node-7"}
    job.code = "import jax\n" + (
        "jax.devices()\ndef train(): pass\n" if at_import else "def train(): return jax.devices()\n"
    )

    outcome = job.run().outcome

    assert (outcome["exit_code"], outcome["reason"]) == (4, "exception")
    assert outcome["phase"] == ("unpickle" if at_import else "call")
    assert outcome["message"] == f"The accelerator of the node node-7 cannot be used: {BUSY}"
    assert "lost_peer" not in outcome


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_components_of_pathways_for_another_jax_fail_the_phase_environment(job: Job) -> None:
    job.env = {"KINETIC_PATHWAYS": "jax-0.1.0", "JAX_PLATFORMS": "proxy"}

    outcome = job.run().outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("environment", 2)
    assert "Pathways runs components for JAX 0.1" in outcome["message"]


@pytest.mark.parametrize(("cause", "lost"), [("JaxRuntimeError", True), ("OSError", None)])
def test_an_exception_because_of_a_lost_peer_is_marked(job: Job, cause: str, lost: Any) -> None:
    job.code = (
        "class JaxRuntimeError(RuntimeError): pass\n"
        "def train():\n"
        f"    try: raise {cause}\n"
        "    except Exception as error: raise RuntimeError('step failed') from error\n"
    )

    assert job.run().outcome.get("lost_peer") is lost


JAX_THAT_JOINS = {
    "jax/__init__.py": "from jax import distributed\n",
    "jax/distributed.py": (
        "calls = []\ndef is_initialized(): return bool(calls)\n"
        "def initialize(coordinator_address, num_processes, process_id, **more):\n"
        "    calls.append([coordinator_address, num_processes, process_id])\n"
    ),
}


@pytest.mark.parametrize(("hosts", "joined"), [(2, [["127.0.0.1:9", 2, 0]]), (1, [])])
def test_importing_jax_joins_the_hosts_of_a_slice(job: Job, hosts: int, joined: Any) -> None:
    job.write(JAX_THAT_JOINS)
    job.record, job.env = {"hosts": hosts}, {"KINETIC_COORDINATOR_ADDRESS": "127.0.0.1:9"}
    job.code = "import jax\ndef train(): return jax.distributed.calls\n"

    run = job.run()
    assert run.value == joined
    # A host that joins has its data: JAX does not wait for long.
    assert (run.phases.index("data") < run.phases.index("unpickle")) is bool(joined)


@pytest.mark.parametrize("at_import", [False, True])
def test_a_host_that_cannot_join_may_have_lost_a_peer(job: Job, at_import: bool) -> None:
    job.write(JAX_THAT_JOINS)
    job.write({"jax/distributed.py": "def initialize(**_): raise RuntimeError('DEADLINE')\n"})
    job.record, job.env = {"hosts": 2}, {"KINETIC_COORDINATOR_ADDRESS": "127.0.0.1:9"}
    job.code = "import jax\ndef train(): pass\n" if at_import else "def train():\n    import jax\n"

    outcome = job.run().outcome

    assert (outcome["exit_code"], outcome["reason"]) == (1, "exception")
    assert outcome["lost_peer"] is True
    assert "could not join" in outcome["message"]


SPOILS = (
    "(p / 'x.csv').write_text('spoiled')\n"
    "    for z in map(Path, ('../context.zip', '../payload.pkl')): z.exists() and z.write_bytes(b'')"
)


@pytest.mark.parametrize(("unchanged", "change"), [(True, "pass"), (False, SPOILS)])
def test_another_attempt_reuses_what_is_unchanged_and_sees_nothing_else(
    job: Job, unchanged: bool, change: str
) -> None:
    job.add_data()
    job.record = {"retries": 1}
    job.code = (
        "import os\nfrom pathlib import Path\ndef train(p):\n"
        "    p = Path(p)\n"
        "    own = sorted(n for n in os.listdir() if n != '__pycache__')\n"
        "    seen = own, sorted(os.listdir(p)), (p / 'x.csv').read_text()\n"
        "    Path('locked').mkdir(0)\n"
        f"    Path('trace').touch(); Path('train.py').write_text('wrong'); {change}\n"
        "    return seen\n"
    )
    task = job.submit()
    first = job.run(task)
    if unchanged:  # Then the second attempt needs nothing of the store.
        for info in list(job.store.list()):
            job.store.delete(info.name)

    last = replace(task, attempt=2, record=replace(task.record, retries=0))
    second = job.run(last)

    assert second.value == first.value == (["train.py"], ["x.csv"], "1,2")
    assert sorted(path.name for path in job.space.iterdir()) == ["data", "project"]


def test_a_value_that_cannot_be_pickled_is_named(job: Job) -> None:
    job.code = "import threading\ndef train(): return {'model': [1, threading.Lock()]}\n"

    outcome = job.run().outcome

    assert (outcome["reason"], outcome["phase"], outcome["exit_code"]) == ("exception", "report", 1)
    assert "value['model'][1] is a _thread.lock" in outcome["message"]
    assert outcome["value_repr"].startswith("{'model'")


def test_only_the_leader_keeps_a_value(job: Job) -> None:
    job.host, job.record = 1, {"hosts": 2}

    outcome = job.run().outcome

    assert outcome["succeeded"]
    assert "value" not in outcome


FORK = "pid = os.fork()\n{0}if pid: print('exit code', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
FORKS = {
    "in the function": FORK.format("    ") + "    return (b'p' if pid else b'c') * 1_000_000\n",
    "and fails there": FORK.format("    ") + "    return b'p' * (1_000_000 if pid else 1 // 0)\n",
    "while modules are imported": "return (b'p' if pid else b'c') * 1_000_000\n" + FORK.format(""),
    "while the value is pickled": (
        "return Value()\nclass Value:\n  def __reduce__(self):\n    "
        f"{FORK.format('    ')}    return bytes, ((b'p' if pid else b'c') * 1_000_000,)\n"
    ),
}


@pytest.mark.parametrize("code", FORKS.values(), ids=FORKS)
def test_a_process_that_user_code_forks_reports_and_stores_nothing(job: Job, code: str) -> None:
    job.code = f"import os\ndef train():\n    {code}"

    run = job.run()

    assert pickle.loads(job.store.read(run.outcome["value"]["name"])) == b"p" * 1_000_000
    assert run.phases.count("report") == run.output.count("exit code") == 1
    fails = "1 // 0" in code
    assert ("ZeroDivisionError" in run.output) == fails
    assert run.output.endswith(f"exit code {int(fails)}\n")


@pytest.mark.parametrize(
    ("signals", "value"),
    [("signal.raise_signal(signal.SIGALRM)", b"barked"), ("_thread.interrupt_main()", b"quiet")],
    ids=["alarm", "thread"],
)
def test_a_watchdog_that_was_not_switched_off_does_not_cost_the_value(
    job: Job, signals: str, value: bytes
) -> None:
    job.code = (
        "import _thread, signal\n"
        "seen = []\n"
        "def bark(*_): seen.append(1); raise TimeoutError('too late')\n"
        "class Value:\n"
        "    def __reduce__(self):\n"
        f"        {signals}\n"
        "        return bytes, (b'barked' if seen else b'quiet',)\n"
        "def train():\n"
        "    signal.signal(signal.SIGALRM, bark)\n"
        "    return Value()\n"
    )

    assert job.run().value == value


def test_a_missing_debugger_fails_the_phase_environment_with_advice(job: Job) -> None:
    job.record, job.before = {"debug": True}, "import sys; sys.modules['debugpy'] = None\n"

    outcome = job.run().outcome

    assert (outcome["phase"], outcome["exit_code"]) == ("environment", 2)
    assert "debugpy is not installed" in outcome["message"]
    assert "requirements" in outcome["message"]
