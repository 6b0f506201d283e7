"""The decorator in a notebook, run by a real Jupyter kernel."""

from __future__ import annotations

import asyncio
import textwrap
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
    """Executes cells; acts once, as soon as *when* returns true for the output of a cell."""

    when: Hook | None = None

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        output = super().process_message(msg, cell, cell_index)
        if self.when is not None and self.when(output_of(cell)):
            self.when = None
            self.act()
        return output

    def interrupt(self) -> None:
        self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())


def output_of(cell: Any, *streams: str) -> str:
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
        """Execute a cell; interrupt it, or *act* otherwise, once *when* returns true for its output."""
        cells = self.client.nb.cells
        cells.append(nbformat.v4.new_code_cell(textwrap.dedent(code).strip()))
        self.client.when, self.client.act = when, act or self.client.interrupt
        return self.client.execute_cell(cells[-1], len(cells) - 1)

    def stdout(self, code: str) -> str:
        """Execute a cell and return what it printed."""
        return output_of(self.cell(code), "stdout")


@pytest.fixture(scope="module")
def notebook(shared_project: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One kernel for all tests: each cleans up its jobs, and shares no names with the others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp("jupyter")))
        with running(shared_project) as notebook:
            notebook.cell("import kinetic, os, time")
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


def test_progress_and_the_log_are_the_output_of_the_cell(notebook, shared_project) -> None:
    go = shared_project.home / "go on"
    cell = notebook.cell(
        f"""
        import sys

        @kinetic.run(accelerator="cpu")
        def talk(go):
            while not os.path.exists(go):
                time.sleep(0.02)
            print("from the job [bold]")
            print("to stderr", file=sys.stderr)
            return 1

        talk({str(go)!r})
        """,
        when=lambda text: "kinetic: submitted " in text,
        act=go.touch,
    )

    assert "from the job [bold]\n" in output_of(cell, "stdout")
    assert "to stderr\nkinetic: done in " in output_of(cell, "stderr")
    assert "\x1b" not in output_of(cell)
    assert cell.outputs[-1].data["text/plain"] == "1"


def test_a_cell_awaits_handles_and_their_jobs_find_modules_and_pools(
    notebook, shared_project
) -> None:
    shared_project.write(
        "helper.py", "import threading\nLOCK = threading.Lock()\ndef double(x): return 2 * x"
    )
    shared_project.write("notes.txt", "read me")

    printed = notebook.stdout("""
        import asyncio, helper, multiprocessing
        from helper import double

        def square(x):
            return x * x

        @kinetic.run(accelerator="cpu")
        def look(x):
            return double(x), helper.LOCK.locked(), open("notes.txt").read(), __name__

        @kinetic.run(accelerator="cpu")
        def pooled():
            with multiprocessing.get_context("fork").Pool(2) as pool:
                return pool.map(square, [1, 2, 3])

        async def get(job):
            return await job
        print(await asyncio.gather(get(look.run_async(4)), get(pooled.run_async())))
        for job in kinetic.list_jobs():
            job.cleanup()
    """)

    assert printed == "[(8, False, 'read me', '__main__'), [1, 4, 9]]\n"


def test_an_interrupted_call_prints_how_to_come_back_and_the_job_goes_on(
    notebook, shared_project
) -> None:
    go = shared_project.home / "go"
    cell = notebook.cell(
        f"""
        @kinetic.run(accelerator="cpu")
        def wait(go):
            print("up", flush=True)
            while not os.path.exists(go):
                time.sleep(0.02)
            return "went on"

        try:
            wait({str(go)!r})
        except KeyboardInterrupt as error:
            print("interrupted")
        job, = kinetic.list_jobs()
        print(job.job_id, job.status().value)
        """,
        when=lambda text: "up\n" in text,
    )

    *_, interrupted, last = output_of(cell, "stdout").splitlines()
    job_id, status = last.split()
    assert (interrupted, status) == ("interrupted", "RUNNING")
    assert f'kinetic.attach("{job_id}").result()' in output_of(cell, "stderr")
    assert f"kinetic jobs cancel {job_id}" in output_of(cell, "stderr")
    assert "[y/N]" not in output_of(cell)

    go.touch()
    assert notebook.stdout(f"print(kinetic.attach({job_id!r}).result())") == "went on\n"
