"""However Python was started and whatever was decorated: the call runs as it would have run here."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
import zipfile

import pytest

DECORATED = """
import kinetic, os, sys

@kinetic.run(accelerator="cpu")
def work(x):
    return helper(x), __name__

def helper(x):
    return x + 1
"""


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


# How Python was started.


def test_python_c(project) -> None:
    project.write("near.py", "def near(): return 'near'")

    done = project.run(
        "-c",
        f"from near import near\n{DECORATED}\nprint(work(1))\nhelper = lambda x: near()\nprint(work(1))",
    )

    assert lines(done) == ["(2, '__main__')", "('near', '__main__')"]


def test_a_script_from_standard_input(project) -> None:
    done = subprocess.run(
        [sys.executable, "-"],
        input=f"{DECORATED}\nprint(work(1))",
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
    )

    assert lines(done) == ["(2, '__main__')"]


def test_a_prompt_on_a_terminal(project) -> None:
    said = at_a_prompt(
        project,
        "import kinetic",
        "class Point:\n    def __init__(self, x): self.x = x\n",
        "@kinetic.run(accelerator='cpu')\ndef work(point): return Point(helper(point.x))\n",
        "def helper(x): return x + 1\n",
        "point = work(Point(1))",
        "print('val' 'ue', point.x, type(point) is Point)",
        "def helper(x): return x + 100\n",
        "print('val' 'ue', work(Point(1)).x)",
        until="value 101",
    )

    assert "value 2 True" in said


def at_a_prompt(project, *typed: str, until: str) -> str:
    """Type lines at `python -i` on a terminal, end it, and return what the terminal showed."""
    ours, theirs = pty.openpty()
    environment = {**project.environment, "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-i", "-q"],
        cwd=project.root,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    try:
        os.write(ours, "".join(f"{line}\n" for line in typed).encode())
        give_up = time.monotonic() + 100
        while until.encode() not in shown and time.monotonic() < give_up:
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536)
        return shown.decode().replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


AT_HOME = """
import os, sys
import kinetic
import near

@kinetic.run(accelerator="cpu")
def work(x):
    return near.near(), helper(x), __name__, os.listdir()

def helper(x):
    return x + 1

if __name__ == "__main__":
    print(work(1), work.run_async(2).result())
"""


@pytest.mark.parametrize("start", ["-c", "-", "prompt"])
@pytest.mark.parametrize("where", ["home", "/"])
def test_what_is_typed_at_home_travels_without_files_and_that_is_one_line(
    project, start: str, where: str
) -> None:
    project.write("near.py", "def near(): return 'near'")
    project.write("requirements.txt", "no-such-package")  # of whatever lies at home
    command = [sys.executable, *(["-i", "-q"] if start == "prompt" else [start])]
    command += [AT_HOME] if start == "-c" else []

    done = subprocess.run(
        command,
        input=re.sub(r"(\n    .*\n)(?=\n?\S)", r"\1\n", AT_HOME).replace("\n\n\n", "\n\n"),
        cwd=project.root if where == "home" else "/",
        env={**project.environment, "HOME": str(project.root), "PYTHONPATH": str(project.root)},
        capture_output=True,
        text=True,
    )

    told = [line for line in done.stderr.splitlines() if "no files are shipped" in line]
    assert lines(done) == ["('near', 2, '__main__', []) ('near', 3, '__main__', [])"], done.stderr
    assert len(told) == 1
    assert f"{project.root if where == 'home' else '/'} is no project" in told[0]


def test_an_environment_of_what_is_typed_at_home_is_of_no_files_there(project) -> None:
    project.write("requirements.txt", "no-such-package-anywhere==1")
    code = f"""{DECORATED.replace('"cpu"', '"cpu", container_image="bundled"')}
job = work.run_async(1)
print(job.result(), job.image_uri.partition(":")[0])
"""

    done = project.run("-c", code, HOME=str(project.root))

    assert lines(done) == ["(2, '__main__') environment"]
    assert [line for line in done.stderr.splitlines() if "no files are shipped" in line]


def test_a_file_at_home_is_no_project(project) -> None:
    project.write("jobs.py", DECORATED)

    done = project.run("-c", "import jobs; jobs.work(1)", HOME=str(project.root))

    assert done.returncode == 1
    assert "because the code lies directly there" in done.stderr


def test_python_m(project) -> None:
    project.write("pkg/__init__.py", "")
    project.write("pkg/near.py", "TABLE = {'near': 1}")
    project.write(
        "pkg/mod.py",
        f"""{DECORATED}
if __name__ == "__main__":
    from .near import TABLE
    import multiprocessing

    @kinetic.run(accelerator="cpu")
    def relative():
        from . import near
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return near.TABLE, TABLE, __package__, pool.map(helper, [1])

    print(work(1))
    print(relative())
""",
    )

    assert lines(project.run("-m", "pkg.mod")) == [
        "(2, '__main__')",
        "({'near': 1}, {'near': 1}, 'pkg', [2])",
    ]


def test_a_package_with_a_main_of_its_own(project) -> None:
    project.write("tool/__init__.py", "")
    project.write("tool/jobs.py", DECORATED)
    project.write("tool/__main__.py", "from tool.jobs import work\nprint(work(1))")

    assert lines(project.run("-m", "tool")) == ["(2, 'tool.jobs')"]


# Where the function lies.


def test_a_src_layout_seen_from_a_script_outside_it(project) -> None:
    project.write("src/lib/__init__.py", "")
    project.write(
        "src/lib/jobs.py",
        "from lib.deep.more import helper\n" + DECORATED.partition("def helper")[0],
    )
    project.write("src/lib/deep/more.py", "def helper(x): return -x")
    project.write("scripts/run.py", "from lib.jobs import work\nprint(work(1))")

    done = project.run("scripts/run.py", PYTHONPATH=str(project.root / "src"))

    assert lines(done) == ["(-1, 'lib.jobs')"]


def test_a_namespace_package(project) -> None:
    project.write("company/team/jobs.py", DECORATED)

    assert lines(project.run("-c", "from company.team.jobs import work; print(work(1))")) == [
        "(2, 'company.team.jobs')"
    ]


def test_the_package_root_can_be_said(project) -> None:
    project.write("../shared/helpers.py", "def helper(x): return 'shared'")
    project.write(
        "run.py",
        "import sys; sys.path.append('../shared')\nfrom helpers import helper\n"
        + DECORATED.partition("def helper")[0]
        + "print(work(1)[0], os.getcwd(), sys.argv)",
    )
    project.write("outside.py", DECORATED + "print(os.path.basename(os.getcwd()))")

    done = project.run("run.py", KINETIC_PACKAGE_ROOT="..")
    refused = project.run("run.py", KINETIC_PACKAGE_ROOT="../shared")

    assert lines(done)[0].startswith("shared ")
    assert refused.returncode == 1
    assert "KINETIC_PACKAGE_ROOT=../shared does not contain" in refused.stderr


def test_a_project_with_its_own_environment_inside(project) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "venv",
            "--without-pip",
            "--system-site-packages",
            project.root / ".venv",
        ],
        check=True,
    )
    (site,) = (project.root / ".venv" / "lib").glob("python*/site-packages")
    for entry in [*map(str, sys.path)]:
        if entry:
            with (site / "outer.pth").open("a") as stream:
                stream.write(f"{entry}\n")
    (site / "third.py").write_text(
        "import threading\nLOCK = threading.Lock()\ndef main(): return 'third'"
    )

    project.write(
        "run.py",
        "import third\n"
        + DECORATED.replace("x + 1", "third.main()")
        + "print(work(1), sys.prefix)",
    )
    done = subprocess.run(
        [project.root / ".venv" / "bin" / "python", "run.py"],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
    )

    assert lines(done) == [f"('third', '__main__') {project.root / '.venv'}"]


# What was decorated.


def test_everything_that_can_be_called(project) -> None:
    project.copy("callables.py")

    printed = project.output("callables.py")

    assert printed.splitlines() == ["12", "11", "20", "7", "17", "2", "10", "15", "-1 method"]


def test_the_same_of_an_imported_module(project) -> None:
    project.write(
        "lib.py",
        """
        import functools, kinetic, threading
        LOCK = threading.Lock()
        remote = kinetic.run(accelerator="cpu")

        class Model:
            rate = 2
            @remote
            def fit(self, x):
                with LOCK:
                    return self.rate * x
            def __call__(self, x):
                with LOCK:
                    return x

        def plain(x, y):
            with LOCK:
                return x, y

        later = remote(functools.partial(plain, 1))
        model = Model()
        called = remote(model)
        short = remote(lambda x: plain(x, x))
        """,
    )

    printed = project.script("""
        import lib
        model = lib.Model()
        model.rate = 3
        print(model.fit(2), lib.later(2), lib.called(3), lib.short(4))
    """)

    assert printed.splitlines()[-1] == "6 (1, 2) 3 (4, 4)"


def test_a_decorated_function_called_in_a_job_simply_runs(project) -> None:
    project.write(
        "steps.py",
        """
        import kinetic, os
        @kinetic.run(accelerator="gpu-l4", capture_env_vars=["X"])
        def step(x):
            return x + 1, os.environ["KINETIC_JOB_ID"]
        """,
    )
    printed = project.script("""
        import kinetic, os
        from steps import step

        @kinetic.run(accelerator="tpu-v5litepod-4")
        def own(x):
            return x + 10, os.environ["KINETIC_JOB_ID"]

        @kinetic.run(accelerator="cpu")
        def work():
            here = os.environ["KINETIC_JOB_ID"]
            try:
                step.run_async(1)
            except kinetic.NotInsideJobError as error:
                said = type(error).__name__
            return step(1) == (2, here), own(1) == (11, here), said

        print(work())
    """)

    assert printed.splitlines()[-1] == "(True, True, 'NotInsideJobError')"


# What the function finds there.


def test_the_working_folder_and_argv_are_those_of_the_project(project) -> None:
    project.write("inner/deep/notes.txt", "read me")
    project.write(
        "inner/run.py",
        """
        import kinetic, os, sys
        @kinetic.run(accelerator="cpu")
        def work():
            return open("notes.txt").read(), os.path.basename(os.getcwd()), [os.path.basename(sys.argv[0]), *sys.argv[1:]], os.path.exists(sys.argv[0]), os.path.basename(__file__)
        print(work())
        """,
    )

    done = subprocess.run(
        [sys.executable, "../run.py", "--lr", "3"],
        cwd=project.root / "inner" / "deep",
        env=project.environment,
        capture_output=True,
        text=True,
    )

    assert lines(done) == ["('read me', 'deep', ['run.py'], True, 'run.py')"]


def test_data_of_a_module_that_was_not_passed_says_so_when_it_is_used(project) -> None:
    project.write("digits.csv", "1,2,3")
    project.write(
        "lib.py",
        """
        import kinetic
        DIGITS = kinetic.Data("digits.csv")

        @kinetic.run(accelerator="cpu")
        def work(path=None):
            return open(path or DIGITS).read()
        """,
    )

    printed = project.script("""
        import kinetic, lib
        print(lib.work(lib.DIGITS))
        try:
            lib.work()
        except kinetic.DataError as error:
            print("refused", error)
    """)

    assert "1,2,3\n" in printed
    assert "refused Data('digits.csv') was not shipped with this call" in printed


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_find_the_functions_of_the_script(project, method: str) -> None:
    project.copy("pools.py")
    project.write("near.py", "def triple(x): return 3 * x")

    printed = project.output("pools.py", method)

    assert printed.splitlines()[-1] == "([Item(x=1), Item(x=4)], True, 9, 0)"


def test_joblib_workers_of_scikit_learn_find_the_functions_of_the_script(project) -> None:
    pytest.importorskip("sklearn")
    printed = project.script("""
        import kinetic

        def half(x):
            return x / 2

        @kinetic.run(accelerator="cpu")
        def work():
            from joblib import Parallel, delayed
            from sklearn.datasets import load_iris
            from sklearn.linear_model import LogisticRegression
            from sklearn.model_selection import cross_val_score
            halves = Parallel(n_jobs=2)(delayed(half)(x) for x in range(3))
            x, y = load_iris(return_X_y=True)
            scores = cross_val_score(LogisticRegression(max_iter=500), x, y, cv=2, n_jobs=2)
            return halves, bool(scores.min() > 0.9)

        if __name__ == "__main__":
            print(work())
    """)

    assert printed.splitlines()[-1] == "([0.0, 0.5, 1.0], True)"


# Which `kinetic` a job imports.


def test_the_installed_kinetic_is_whole_in_a_job(project) -> None:
    printed = project.script("""
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            import kinetic.settings.settings, kinetic_payload
            return (kinetic.__version__, kinetic.JobStatus.FAILED.value, callable(kinetic.attach),
                    kinetic.__file__ == here, "remote_runner" in kinetic_payload.__file__)

        here = kinetic.__file__
        print(work())
    """)

    assert printed.splitlines()[-1] == "('0.1.0', 'FAILED', True, True, True)"


def environment_with(project, module: str, text: str) -> None:
    """Let the project ask for an environment with one package, whose whole content is *module*."""
    info = "stranger-1.0.dist-info"
    wheel = project.root / "wheels" / "stranger-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr(module, text)
        files.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
        files.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files.writestr(f"{info}/RECORD", "")
    project.write("requirements.txt", "--no-index\n--find-links wheels\nstranger\n")
    project.write(
        "steps.py",
        """
        import kinetic
        from kinetic import Data, JobHandle, attach

        @kinetic.run(accelerator="cpu", container_image="bundled")
        def step(x, handle: JobHandle | None = None):
            return x + 1, Data("nowhere").fuse
        """,
    )


IN_AN_ENVIRONMENT = """
    import kinetic
    from steps import step

    @kinetic.run(accelerator="cpu", container_image="bundled")
    def work():
        import importlib.metadata, sys
        assert importlib.metadata.version("stranger") == "1.0"
        try:
            kinetic.list_jobs()
        except kinetic.NotInsideJobError as error:
            said = str(error)
        return step(1), said, kinetic.__file__, "msgspec" in sys.modules

    if __name__ == "__main__":
        print(*work())
"""


def test_an_environment_without_kinetic_has_the_light_one(project) -> None:
    environment_with(project, "stranger.py", "")

    printed = project.script(IN_AN_ENVIRONMENT)

    assert "(2, False) kinetic.list_jobs is for processes that submit jobs" in printed
    assert "/light/kinetic/__init__.py" in printed


def test_a_strangers_kinetic_in_the_jobs_environment_is_not_ours(project) -> None:
    environment_with(project, "kinetic/__init__.py", "raise RuntimeError('a stranger')")

    printed = project.script(IN_AN_ENVIRONMENT)

    assert "(2, False) kinetic.list_jobs is for processes that submit jobs" in printed
    assert "/light/kinetic/__init__.py" in printed
