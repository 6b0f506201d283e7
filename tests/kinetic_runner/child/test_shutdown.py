"""A function's process ends as a script does that does the same, only never for good."""

from __future__ import annotations

import gzip
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

from kinetic_payload.layout import STDERR_MARK

# Each runs once as a script and once in a job, and both must leave and print the same.
SCRIPTS = {
    "files stay open": """
        import tempfile
        sys.kept = [
            open("text", "w"), open("bytes", "wb"), open("both", "w+b"),
            tempfile.NamedTemporaryFile(dir="."), tempfile.TemporaryDirectory(dir="."),
        ]
        for file in sys.kept[:3]:
            file.write(b"x" if "b" in file.mode else "x")
    """,
    "threads go on": """
        import atexit, threading, time
        def save():
            time.sleep(0.3)
            open("checkpoint", "w").write("saved")
            print("saved", flush=True)
            # Two releases let scripts start no thread at their end: python/cpython#113964.
            if not (3, 12) <= sys.version_info < (3, 12, 2):
                threading.Thread(target=print, args=("another",)).start()
        atexit.register(print, "first")
        atexit.register(lambda: print("last", open("checkpoint").read()))
        threading.Thread(target=save).start()
    """,
    "an executor is not shut down": """
        import atexit, time
        from concurrent.futures import ThreadPoolExecutor
        atexit.register(print, "handled")
        sys.pool = ThreadPoolExecutor(1)
        for n in range(3):
            sys.pool.submit(lambda n: (time.sleep(0.05), print(n, flush=True)), n)
    """,
    "handlers and threads fail": """
        import atexit, threading
        threading.excepthook = lambda seen: print("thread:", seen.exc_value, flush=True)
        def fails(): raise KeyError("no")
        atexit.register(print, "still called")
        atexit.register(lambda: sys.exit(3))
        threading.Thread(target=fails).start()
    """,
    "the function fails": """
        import threading, time
        sys.kept = open("text", "w")
        sys.kept.write("written before")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        raise ValueError
    """,
}


def test_a_job_leaves_what_a_script_leaves(runner) -> None:
    for name, text in SCRIPTS.items():
        text = textwrap.dedent(text)
        folders = {kind: runner.folder / f"{kind} {name}" for kind in ("script", "job")}
        for folder in folders.values():
            folder.mkdir()
        script = subprocess.run(
            [sys.executable, "-c", f"import sys\n{text}"],
            cwd=folders["script"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        body = f"os.chdir({str(folders['job'])!r})\nsys.stderr = open(os.devnull, 'w')\n{text}"
        job = runner.run(body, linger=600, job=name.replace(" ", "-"))

        printed = {"script": script.stdout.decode(), "job": job.output.decode()}
        left = {kind: contents(folder) for kind, folder in folders.items()}
        output = printed["job"].replace("failed: \n", "")  # The runner of these tests prints it.
        assert (output, left["job"]) == (printed["script"], left["script"]), name


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_archives_that_were_not_closed_can_be_read(runner) -> None:
    folder = runner.folder

    # Python itself closes the inner file before the outer one, or after, as it happens.
    runner.run(
        f"""
        import gzip, zipfile
        os.chdir({str(folder)!r})
        sys.kept = [zipfile.ZipFile("archive.zip", "w"), gzip.open("packed.gz", "wt")]
        sys.kept[0].writestr("name", "content")
        sys.kept[1].write("content")
        """
    )

    assert zipfile.ZipFile(folder / "archive.zip").read("name") == b"content"
    assert gzip.decompress((folder / "packed.gz").read_bytes()) == b"content"


def test_threads_that_do_not_end_are_named_and_all_else_is_finished(runner) -> None:
    path = runner.folder / "file"

    done = runner.run(
        f"""
        import atexit
        atexit.register(print, "handled", flush=True)
        sys.kept = open({str(path)!r}, "w")
        sys.kept.write("flushed")
        threading.Thread(target=time.sleep, args=(600,), name="checkpoints").start()
        """,
        linger=2,
    )

    assert (done.code, done.outcome["succeeded"]) == (0, True)
    assert done.log.startswith(b"handled\n")
    assert b"cut off: checkpoints." in done.log
    assert path.read_text() == "flushed"


def test_a_file_that_a_thread_is_stuck_in_does_not_cost_another_its_content(runner) -> None:
    fifo, path = runner.folder / "fifo", runner.folder / "file"

    done = runner.run(
        f"""
        os.mkfifo({str(fifo)!r})
        stuck = os.fdopen(os.open({str(fifo)!r}, os.O_RDWR), "wb")
        sys.kept = [stuck, open({str(path)!r}, "wb")]
        sys.kept[1].write(b"flushed")
        began = threading.Event()
        def write():
            began.set()
            stuck.write(b"x" * 10_000_000)  # Nobody reads it.
        threading.Thread(target=write, daemon=True).start()
        began.wait()
        """,
        linger=3,
    )

    assert (done.code, done.outcome["succeeded"]) == (0, True)
    assert path.read_bytes() == b"flushed"


def test_forked_processes_that_leave_the_function_end_as_in_a_script_and_report_nothing(runner):
    done = runner.run(
        """
        import atexit
        atexit.register(print, "cleaned up")
        ends = {"return": None, "7": SystemExit(7), "no": SystemExit("no"), "raise": GeneratorExit("g")}
        for end in ends.values():
            if os.fork() == 0:
                if end: raise end
                return
            print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )

    lines = done.log.decode().splitlines()
    errors = [line for line in lines if line.startswith(STDERR_MARK)]
    assert done.outcome["succeeded"]
    assert [line for line in lines if line not in errors] == ["0", "7", "1", "1", "cleaned up"]
    assert errors[0] == f"{STDERR_MARK}no"
    assert errors[-1] == f"{STDERR_MARK}GeneratorExit: g"
