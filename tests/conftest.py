"""What the tests of all packages share: how processes begin and end, and the READMEs' examples."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = Path(__file__).parents[1] / "packages"
sys.path.append(str(Path(__file__).parent / "tools"))  # Tests in several folders use `dap_client`.


def pytest_configure(config: pytest.Config) -> None:
    """Let signals do what they do: who runs the tests in the background has them ignored, and so
    would every process that a test starts. To be told to stop is to be interrupted: fixtures tidy up.

    `PYTHONDONTWRITEBYTECODE` counts for nothing: each of some thousand processes would compile what it imports.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # noqa: TID251 - the processes inherit it
    sys.dont_write_bytecode = False
    if worker := getattr(config, "workerinput", None):
        # All import all tests. Each begins elsewhere, so that it finds what the others have compiled meanwhile.
        first = len(config.args) * int(worker["workerid"][2:]) // worker["workercount"]
        config.args = [*config.args[first:], *config.args[:first]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # `nohup` is kept, and not handed on.


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes share the tests if nobody says (`-n 4`): none for single files.

    More than there are cores: tests wait for processes, and for time to pass, more than they compute.
    """
    folders = any(Path(argument).is_dir() for argument in config.args)
    return _cores() + 2 if folders and config.option.capture != "no" else 0


def _cores() -> int:
    """Return how many cores there are for us: a container may be given few of a large machine."""
    pinned = getattr(os, "sched_getaffinity", None)
    count = len(pinned(0)) if pinned else os.cpu_count() or 1
    groups = Path("/sys/fs/cgroup")
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = map(int, " ".join((groups / f).read_text() for f in files).split())
        except (OSError, ValueError):  # There is no such file, or it says `max`.
            continue
        if quota > 0:
            count = min(count, -(-quota // period))
    return count


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Begin with what takes longest, so that it is not what all wait for in the end.

    Before the items are shuffled, they have the same order in all processes.
    """
    items.sort(key=lambda item: item.path)
    yield
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Leave the frames of pytest out of tracebacks: they are most of the output of a failed run."""
    if call.excinfo is not None:
        call.excinfo.traceback = call.excinfo.traceback.cut(path=item.path)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """End what tests left that were interrupted, or that forgot something, and say so."""
    folder = config._tmp_path_factory._basetemp  # type: ignore[attr-defined]
    for told in ended_below(folder) if folder else ():
        terminalreporter.write_line(f"A test left a process; ended: {told}", red=True)


def ended_below(folder: Path) -> list[str]:
    """Kill every process that names something below *folder* or has a file open there, and tell them.

    A supervisor whose bucket is gone would look for it for an hour.
    """
    try:
        import psutil
    except ImportError:  # What does not come with it starts no jobs.
        return []
    ended = []
    this = psutil.Process()
    for process in psutil.process_iter():
        try:
            # No test started what is older than we, and who called us may name the folder (`--basetemp`).
            if process == this or process.create_time() < this.create_time():
                continue
            named = [*process.cmdline(), process.environ().get("KINETIC_HOME", "")]
            named += [file.path for file in process.open_files()]
            if any(f"{folder}/" in f"{name}/" for name in named):
                ended.append(f"{process.pid} {' '.join(process.cmdline())}")
                process.kill()
        except psutil.Error:
            continue
    return ended


@pytest.fixture(scope="session")
def end_processes_below() -> Callable[[Path], object]:
    """Return what kills the processes that name something below a folder or have a file open there."""
    return ended_below


@pytest.fixture(scope="session")
def with_bytecode() -> bool:
    """Whether the runner of these tests' jobs has bytecode, as on this machine; on a cluster it has none."""
    return True


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory, with_bytecode: bool) -> Callable[[Path], Path]:
    """Return what puts into a `KINETIC_HOME`, and returns it, what a first submit would make there.

    That is the runner's bundle: half a second of compiling for each of some hundred homes.
    """
    from kinetic.jobs.runner import modules_in_jobs
    from kinetic_runner.bundle import bundle_for

    cache = tmp_path_factory.mktemp("cache")
    made = bundle_for(cache, modules_in_jobs(), bytecode=with_bytecode)

    def put(home: Path) -> Path:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "cache").mkdir(exist_ok=True)
        shutil.copy2(made, home / "cache")
        return home

    return put


@pytest.fixture(scope="module")
def copy_project(request: pytest.FixtureRequest) -> Callable[[str, Path], None]:
    """Return what copies a fixture project, a file or folder of `projects` beside the test, to a folder.

    Copies are new files, as a test that writes them makes them: their times and modes are not those here.
    """
    projects = request.path.parent / "projects"

    def copy(name: str, folder: Path) -> None:
        source = projects / name
        if source.is_dir():
            shutil.copytree(
                source,
                folder,
                ignore=shutil.ignore_patterns("__pycache__"),
                copy_function=shutil.copyfile,
                dirs_exist_ok=True,
            )
        else:
            shutil.copyfile(source, folder / source.name)

    return copy


@pytest.fixture
def run_readme(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], None]:
    """Return what runs the Python example of the README of the package whose test asks.

    It runs as a script in an empty folder, in a process of its own, and must print what stands
    behind `# →`, in that order.
    """
    distribution = request.path.parent.name.replace("_", "-")
    readme = (PACKAGES / distribution / "README.md").read_text(encoding="utf-8")

    def run() -> None:
        examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        assert len(examples) == 1, "one example that shows the package alone"
        script = tmp_path / "example.py"
        script.write_text(examples[0], encoding="utf-8")
        environ = os.environ.items()  # noqa: TID251 - a child's begins with ours
        kept = {k: v for k, v in environ if not k.startswith("KINETIC_")}
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env={**kept, "KINETIC_HOME": str(tmp_path / "home"), "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = iter(done.stdout.splitlines())
        for expected in re.findall(r"# → (.*)$", examples[0], re.MULTILINE):
            assert expected in lines, f"{expected!r} is not (or too late) in:\n{done.stdout}"

    return run


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The authority of all GKE servers of this process: gRPC reads the file of the trusted ones only once."""
    pytest.importorskip("trustme", reason="it needs kinetic-servers")
    from kinetic_servers.gke import Authority

    found = Authority(tmp_path_factory.mktemp("authority"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(found.file))
        yield found


@pytest.fixture
def gke(authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A GKE API, which Google's libraries and Kinetic use in this process."""
    from kinetic_servers.gke import GkeServer

    with GkeServer(tmp_path / "gke", authority=authority) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
