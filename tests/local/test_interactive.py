"""Functions run in a job as they would run here, however Python was started and whatever was decorated."""

from __future__ import annotations

import re
import subprocess
import sys

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


@pytest.mark.parametrize("start", ["-c", "-"])
def test_code_of_a_command_or_of_standard_input_runs_with_the_projects_modules(
    project, start: str
) -> None:
    project.write("near.py", "def near(): return 'near'")
    code = f"{DECORATED.replace('x + 1', 'x, near()')}\nfrom near import near\nprint(work(1))"

    arguments = [start, code] if start == "-c" else [start]
    done = project.execute(sys.executable, *arguments, text=code)

    assert lines(done) == ["((1, 'near'), '__main__')"]


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


@pytest.mark.parametrize(("start", "where"), [("-c", "home"), ("prompt", "/")])
def test_code_typed_at_home_or_at_the_root_travels_without_files_with_one_notice(
    project, start: str, where: str
) -> None:
    project.write("near.py", "def near(): return 'near'")
    project.write("requirements.txt", "no-such-package")  # of whatever lies at home
    arguments = ["-i", "-q"] if start == "prompt" else ["-c", AT_HOME]

    done = project.execute(
        sys.executable,
        *arguments,
        text=re.sub(r"(\n    .*\n)(?=\n?\S)", r"\1\n", AT_HOME).replace("\n\n\n", "\n\n"),
        cwd=project.root if where == "home" else "/",
        HOME=str(project.root),
        PYTHONPATH=str(project.root),
    )

    notices = [line for line in done.stderr.splitlines() if "no files are shipped" in line]
    assert lines(done) == ["('near', 2, '__main__', []) ('near', 3, '__main__', [])"], done.stderr
    assert len(notices) == 1
    assert f"{project.root if where == 'home' else '/'} is no project" in notices[0]


def test_a_module_started_with_m_keeps_its_package(project) -> None:
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

    print(relative())
""",
    )

    assert lines(project.run("-m", "pkg.mod")) == ["({'near': 1}, {'near': 1}, 'pkg', [2])"]


# Where the function lies, and what it finds there.


def test_a_script_finds_its_folder_itself_and_a_namespace_package_of_a_src_layout(
    project,
) -> None:
    project.write(
        "src/company/team/jobs.py",
        "from company.deep.more import helper\ndef near(x): return helper(x), __name__",
    )
    project.write("src/company/deep/more.py", "def helper(x): return -x")
    project.write(
        "scripts/run.py",
        """
        import kinetic, os, sys
        from company.team.jobs import near

        @kinetic.run(accelerator="cpu")
        def work():
            [script] = sys.argv  # Arguments are the client's.
            return (near(1), open("notes.txt").read(), os.path.basename(os.getcwd()),
                    os.path.basename(script), os.path.exists(script))

        print(work())
        """,
    )
    project.write("inner/deep/notes.txt", "read me")

    command = [sys.executable, "../../scripts/run.py", "--lr", "3"]
    source, folder = str(project.root / "src"), project.root / "inner" / "deep"
    done = project.execute(*command, cwd=folder, PYTHONPATH=source)

    assert lines(done) == ["((-1, 'company.team.jobs'), 'read me', 'deep', 'run.py', True)"]


def test_a_project_with_its_own_environment_inside_uses_that(project) -> None:
    environment = project.root / ".venv"
    make = ["-m", "venv", "--without-pip", "--system-site-packages", str(environment)]
    subprocess.run([sys.executable, *make], check=True)
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "outer.pth").write_text("".join(f"{entry}\n" for entry in sys.path if entry))
    (site / "third.py").write_text(
        "import threading\nLOCK = threading.Lock()\ndef main(): return 'third'"
    )
    call = DECORATED.replace("x + 1", "third.main()")
    project.write("run.py", f"import third\n{call}print(work(1), sys.prefix)")

    done = project.execute(str(environment / "bin" / "python"), "run.py")

    assert lines(done) == [f"('third', '__main__') {environment}"]


# What was decorated.


def test_partials_methods_and_instances_of_script_and_modules_can_be_called(project) -> None:
    project.write(
        "lib.py",
        """
        import kinetic, threading
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

        called = remote(Model())
        short = remote(lambda x: plain(x, x))
        """,
    )
    project.copy("callables.py")

    assert project.json("callables.py") == [[10, 11, -1, 6, 3, [4, 4]], "method"]


# Inside a job.


def test_kinetic_in_a_job_is_the_installed_one_and_calls_simply_run(project) -> None:
    project.write("digits.csv", "1,2,3")
    project.write(
        "steps.py",
        """
        import kinetic, os
        DIGITS = kinetic.Data("digits.csv")

        @kinetic.run(accelerator="gpu-l4", capture_env_vars=["X"])
        def step(x):
            return x + 1, os.environ["KINETIC_JOB_ID"]

        def read():
            return open(DIGITS).read()
        """,
    )
    printed = project.script("""
        import kinetic, os
        import steps

        @kinetic.run(accelerator="cpu")
        def work():
            import kinetic.settings.settings, kinetic_payload
            refusals = []
            for refused in (lambda: steps.step.run_async(1), steps.read):
                try:
                    refused()
                except kinetic.KineticError as error:
                    refusals.append(f"{type(error).__name__} {error}")
            assert steps.step(1) == (2, os.environ["KINETIC_JOB_ID"])
            assert kinetic.JobStatus.FAILED.value == "FAILED" and callable(kinetic.attach)
            assert "remote_runner" in kinetic_payload.__file__
            return kinetic.__file__ == here, *refusals

        here = kinetic.__file__
        print(*work(), sep="\\n")
    """)

    assert printed.startswith("True\nNotInsideJobError")
    assert "DataError Data('digits.csv') was not shipped with this call" in printed
