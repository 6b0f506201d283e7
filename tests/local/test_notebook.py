"""The decorator in a notebook, run by a real Jupyter kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
Config = pytest.importorskip("traitlets.config").Config
pytest.importorskip("ipykernel")

Hook = Callable[[str], bool]


class Client(nbclient.NotebookClient):
    """Executes cells; acts once on a cell's output, as soon as *when* says so of it."""

    when: Hook | None = None

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        output = super().process_message(msg, cell, cell_index)
        if self.when is not None and self.when(said(cell)):
            self.when = None
            self.act()
        return output

    def interrupt(self) -> None:
        self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())


def said(cell: Any, *streams: str) -> str:
    """Return what *cell* wrote, on all streams or only on some."""
    return "".join(
        output.text
        for output in cell.outputs
        if output.output_type == "stream" and output.name in (streams or ("stdout", "stderr"))
    )


@dataclass
class Notebook:
    """A notebook whose cells are written and executed one after the other."""

    client: Client

    def cell(
        self, code: str, *, when: Hook | None = None, act: Callable[[], object] | None = None
    ) -> Any:
        """Execute a cell; interrupt it, or do something else, *when* its output is like that."""
        import textwrap

        cells = self.client.nb.cells
        cells.append(nbformat.v4.new_code_cell(textwrap.dedent(code).strip()))
        self.client.when, self.client.act = when, act or self.client.interrupt
        return self.client.execute_cell(cells[-1], len(cells) - 1)

    def stdout(self, code: str) -> str:
        """Execute a cell and return what it printed."""
        return said(self.cell(code), "stdout")


@pytest.fixture
def notebook(project, tmp_path, monkeypatch) -> Iterator[Notebook]:
    for name, folder in (("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    with running(project) as notebook:
        notebook.cell("import kinetic")
        yield notebook


@contextmanager
def running(project) -> Iterator[Notebook]:
    # Sockets in a folder (of a short name, the system wants that): a port that was free a moment
    # ago may be another's when the kernel takes it.
    with TemporaryDirectory(prefix="kn-", dir="/tmp") as folder:
        client = Client(
            nbformat.v4.new_notebook(),
            kernel_name="python3",
            timeout=None,  # The test has a limit of its own,
            startup_timeout=100,
            iopub_timeout=100,  # and what a cell printed is all there before the next one.
            raise_on_iopub_timeout=True,
            resources={"metadata": {"path": str(project.root)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}}),
        )
        with client.setup_kernel(env=project.environment):
            yield Notebook(client)


def test_cells_share_functions_and_the_value_is_of_the_cells_own_class(notebook) -> None:
    notebook.cell("""
        from dataclasses import dataclass
        from enum import Enum

        class Colour(Enum):
            RED = 1

        @dataclass
        class Point:
            x: int
            colour: Colour

        def shift(x):
            return x + 1
    """)
    notebook.cell("""
        @kinetic.run(accelerator="cpu")
        def work(point):
            return Point(shift(point.x), point.colour)
    """)

    printed = notebook.stdout("""
        made = work(Point(1, Colour.RED))
        print(made, isinstance(made, Point), type(made) is Point, made.colour is Colour.RED)
    """)
    redefined = notebook.stdout("""
        def shift(x):
            return x + 100
        print(work(Point(1, Colour.RED)).x)
    """)

    assert printed == "Point(x=2, colour=<Colour.RED: 1>) True True True\n"
    assert redefined == "101\n"


def test_a_notebook_in_the_home_directory_ships_no_files_and_says_so(notebook) -> None:
    notebook.cell("""
        import os
        os.environ["HOME"] = os.getcwd()

        def shift(x):
            return x + 1
    """)

    cell = notebook.cell("""
        @kinetic.run(accelerator="cpu")
        def work(x):
            return shift(x), os.listdir()

        print(work(1))
    """)

    assert "(2, [])" in said(cell, "stdout")
    assert said(cell, "stderr").count("no files are shipped") == 1


def test_progress_and_the_log_are_the_output_of_the_cell(notebook, project) -> None:
    go = project.home / "go"
    cell = notebook.cell(
        f"""
        import os, sys, time

        @kinetic.run(accelerator="cpu")
        def work(go):
            while not os.path.exists(go):
                time.sleep(0.02)
            print("from the job [bold]")
            print("to stderr", file=sys.stderr)
            return 1

        work({str(go)!r})
        """,
        when=lambda text: "kinetic: running\n" in text,
        act=go.touch,
    )

    assert "from the job [bold]\nto stderr\n" in said(cell, "stdout")
    assert "kinetic: running\n" in said(cell, "stderr")
    assert "\x1b" not in said(cell)
    assert cell.outputs[-1].data["text/plain"] == "1"


def test_an_exception_class_of_a_cell_is_caught_as_that_class(notebook) -> None:
    notebook.cell("""
        class Sad(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} and {b}")
                self.b = b

        @kinetic.run(accelerator="cpu")
        def work():
            raise Sad(1, 2)
    """)

    printed = notebook.stdout("""
        try:
            work()
        except Sad as error:
            print("caught", error.b)
            print(*error.__notes__)
    """)

    assert "caught 2" in printed
    assert "in work" in printed
    assert "raise Sad(1, 2)" in printed  # the line of the cell, though the job has no such file


def test_a_cell_awaits_handles_while_others_are_made(notebook) -> None:
    printed = notebook.stdout("""
        import asyncio

        @kinetic.run(accelerator="cpu")
        def square(x):
            return x * x

        print(await square.run_async(3))
        async def get(job):
            return await job
        print(await asyncio.gather(*(get(square.run_async(x)) for x in range(3))))
        print(square(4))
    """)

    assert printed.startswith("9\n[0, 1, 4]\n")
    assert printed.endswith("16\n")


def test_modules_beside_the_notebook_are_imported_in_the_job(notebook, project) -> None:
    project.write(
        "helper.py", "import threading\nLOCK = threading.Lock()\ndef double(x): return 2 * x"
    )
    project.write("notes.txt", "read me")

    printed = notebook.stdout("""
        import helper
        from helper import double

        @kinetic.run(accelerator="cpu")
        def work(x):
            return double(x), helper.LOCK.locked(), open("notes.txt").read(), __name__

        print(work(4))
    """)

    assert printed == "(8, False, 'read me', '__main__')\n"


def test_pools_in_a_cells_function_find_the_cells_functions(notebook) -> None:
    printed = notebook.stdout("""
        import multiprocessing

        def square(x):
            return x * x

        @kinetic.run(accelerator="cpu")
        def work():
            with multiprocessing.get_context("fork").Pool(2) as pool:
                return pool.map(square, [1, 2, 3])

        print(work())
    """)

    assert printed == "[1, 4, 9]\n"


def test_interrupting_a_blocking_call_says_how_to_come_back_and_the_job_goes_on(
    notebook, project
) -> None:
    notebook.cell("""
        import os, time
        from kinetic import JobStatus

        @kinetic.run(accelerator="cpu", capture_env_vars=["GO"])
        def work():
            print("up", flush=True)
            while not os.path.exists(os.environ["GO"]):
                time.sleep(0.02)
            return "went on"
    """)
    go = project.home / "go"
    cell = notebook.cell(
        f"""
        os.environ["GO"] = {str(go)!r}
        try:
            work()
        except KeyboardInterrupt as error:
            print("interrupted")
        job, = kinetic.list_jobs()
        print(job.job_id, job.status().value)
        """,
        when=lambda text: "up\n" in text,
    )

    *_, interrupted, last = said(cell, "stdout").splitlines()
    job_id, status = last.split()
    assert (interrupted, status) == ("interrupted", "RUNNING")
    assert f'kinetic.attach("{job_id}").result()' in said(cell, "stderr")
    assert f"kinetic jobs cancel {job_id}" in said(cell, "stderr")
    assert "[y/N]" not in said(cell)

    go.touch()
    assert notebook.stdout(f"print(kinetic.attach({job_id!r}).result())") == "went on\n"


def test_an_uncaught_interrupt_ends_the_cell_and_the_job_can_be_cancelled(notebook) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="KeyboardInterrupt"):
        notebook.cell(
            """
            import time

            @kinetic.run(accelerator="cpu")
            def work():
                print("up", flush=True)
                time.sleep(600)

            work()
            """,
            when=lambda text: "up\n" in text,
        )

    printed = notebook.stdout("""
        job, = kinetic.list_jobs()
        job.cancel()
        try:
            job.result()
        except kinetic.JobCancelledError:
            print("cancelled")
    """)

    assert printed.endswith("cancelled\n")
