"""The life of a local job as a user sees it: scripts, processes of their own, nothing patched."""

from __future__ import annotations

import json

import pytest

PRELUDE = """
import kinetic, os, sys
"""


def test_a_call_brings_the_value_and_the_log(project) -> None:
    project.write("helper.py", "def double(x):\n    return 2 * x\n")

    printed = project.script("""
        import kinetic
        from helper import double

        @kinetic.run(accelerator="cpu")
        def work(x):
            print("working on", x)
            return double(x)

        if __name__ == "__main__":
            print("value", work(21))
    """)

    assert "working on 21" in printed
    assert "value 42" in printed


def test_a_function_of_a_module_of_the_project_runs_by_reference(project) -> None:
    project.write(
        "package/jobs.py",
        """
        import threading
        import kinetic
        LOCK = threading.Lock()      # would not pickle

        @kinetic.run(accelerator="cpu")
        def work():
            with LOCK:
                return __name__
        """,
    )
    project.write("package/__init__.py", "")

    printed = project.script("from package.jobs import work\nprint(work())")

    assert "package.jobs" in printed


def test_the_users_own_exception_comes_back_as_itself_with_notes(project) -> None:
    printed = project.script("""
        import kinetic

        class Sad(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} and {b}")
                self.b = b

        @kinetic.run(accelerator="cpu")
        def work():
            raise Sad(1, 2)

        try:
            work()
        except Sad as error:
            print("caught", error, error.b)
            print("\\n".join(error.__notes__))
    """)

    assert "caught 1 and 2 2" in printed
    assert "Remote traceback" in printed
    assert "raise Sad(1, 2)" in printed
    assert "phase 'call' of attempt 1 on host 0" in printed


def test_a_detached_job_outlives_its_submitter_and_is_collected_by_another_process(project) -> None:
    gate = str(project.home / "gate")
    job_id = project.script(
        """
        import kinetic, os, sys, time

        @kinetic.run(accelerator="cpu")
        def work(gate):
            while not os.path.exists(gate):
                time.sleep(0.02)
            print("done")
            return {"answer": 42}

        print(work.run_async(sys.argv[1]).job_id)
    """,
        gate,
    ).strip()

    printed = project.script(
        """
        import kinetic, sys
        job = kinetic.attach(sys.argv[1])
        print(job.status().value)
        open(sys.argv[2], "w").close()
        print(job.result(cleanup=False))
        print(job.status().value)
        print(repr(job.tail(1)))
        print(job.result())
        print(job.status().value)
        print(job.result())
        """,
        job_id,
        gate,
    )

    first, *rest = printed.splitlines()
    assert first in ("PENDING", "RUNNING")
    assert rest == [
        "{'answer': 42}",
        "SUCCEEDED",
        "'done'",
        "{'answer': 42}",
        "NOT_FOUND",
        "{'answer': 42}",
    ]


def test_outcome_says_what_happened_without_unpickling(project) -> None:
    printed = project.script("""
        import kinetic, json

        @kinetic.run(accelerator="cpu", retries=1)
        def work():
            raise ValueError("no")

        job = work.run_async()
        try:
            job.result()
        except ValueError:
            pass
        outcome = job.outcome()
        print(json.dumps({
            "status": outcome.status.value,
            "attempts": sorted(outcome.attempts),
            "errors": [h.error.type for h in outcome.hosts],
        }))
    """)

    said = json.loads(printed.splitlines()[-1])
    assert said == {"status": "FAILED", "attempts": [1, 2], "errors": ["ValueError", "ValueError"]}


def test_a_further_attempt_begins_afresh_and_the_earlier_one_leaves_nothing_behind(project) -> None:
    project.write("set/one.txt", "one")

    printed = project.script("""
        import kinetic, os
        from pathlib import Path

        @kinetic.run(accelerator="cpu", retries=1)
        def work(data):
            assert not Path("trace").exists()
            assert Path(data, "one.txt").read_text() == "one"
            Path("trace").touch()
            Path(data, "one.txt").write_text("changed")
            if os.environ["KINETIC_ATTEMPT"] == "1":
                raise ValueError
            return os.environ["KINETIC_ATTEMPT"]

        job = work.run_async(kinetic.Data("set"))
        print(job.result(cleanup=False))
    """)

    assert printed.splitlines()[-1] == "2"
    (folder,) = (project.home / "jobs").iterdir()
    assert len(list(folder.rglob("trace"))) == 1
    assert len(list(folder.rglob("one.txt"))) == 1
    assert (folder / "attempt-1" / "host-0.log").exists()


def test_data_and_volumes_arrive_as_paths(project) -> None:
    project.write("set/a/one.txt", "one")
    project.write("set/two.txt", "two")
    project.write("config.json", "{}")

    printed = project.script("""
        import kinetic, os
        from dataclasses import dataclass

        @dataclass
        class Config:
            files: list

        @kinetic.run(accelerator="cpu")
        def work(directory, config):
            names = sorted(os.path.relpath(os.path.join(d, f), directory)
                           for d, _, fs in os.walk(directory) for f in fs)
            return names, open(config.files[0]).read(), os.path.basename(config.files[0])

        print(work(kinetic.Data("set/"), Config([kinetic.Data("config.json")])))
    """)

    assert "(['a/one.txt', 'two.txt'], '{}', 'config.json')" in printed


def test_volumes_appear_at_their_paths_for_the_job_only(project) -> None:
    from kinetic_runner.data.mounts import why_not_private

    project.write("set/one.txt", "one")
    project.write("config.json", "{}")

    project.write(
        "main.py",
        """
        import kinetic, os

        @kinetic.run(
            accelerator="cpu",
            volumes={
                "/kinetic-test/data": kinetic.Data("set"),
                "/kinetic-test/config": kinetic.Data("config.json"),
            },
        )
        def work():
            return os.listdir("/kinetic-test/data"), os.listdir("/kinetic-test/config")

        print(work(), os.path.exists("/kinetic-test"))
        """,
    )
    done = project.run("main.py")

    if why_not_private() is None:
        assert "(['one.txt'], ['config.json']) False" in done.stdout, done.stderr
    else:
        assert done.returncode == 1
        assert "Pass the kinetic.Data as an argument instead" in done.stderr


def test_timeout_is_an_error_and_the_job_runs_on(project) -> None:
    printed = project.script("""
        import kinetic, time

        @kinetic.run(accelerator="cpu")
        def work():
            print("up", flush=True)
            time.sleep(600)

        job = work.run_async()
        next(job.log_lines(follow=True))
        try:
            job.result(timeout=0.1)
        except TimeoutError as error:
            print("timeout", job.status().value)
        job.cancel()
        print(job.status().value)
        try:
            job.result()
        except kinetic.JobCancelledError:
            print("cancelled")
        job.cleanup()
        print(job.status().value)
    """)

    assert printed.splitlines() == ["timeout RUNNING", "FAILED", "cancelled", "NOT_FOUND"]


def test_the_environment_is_a_small_one_and_captured_names_are_in_it(project) -> None:
    printed = project.script(
        """
        import kinetic, os

        @kinetic.run(accelerator="tpu-v5litepod-4", capture_env_vars=["MINE_*", "ONE"])
        def work():
            return {name: os.environ.get(name) for name in
                    ("MINE_A", "ONE", "OTHER", "KERAS_BACKEND", "JAX_PLATFORMS", "KINETIC_ATTEMPT", "KINETIC_HOST_INDEX")}

        print(work())
        """,
        MINE_A="a",
        ONE="1",
        OTHER="x",
    )

    expected = {
        "MINE_A": "a",
        "ONE": "1",
        "OTHER": None,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "KINETIC_ATTEMPT": "1",
        "KINETIC_HOST_INDEX": "0",
    }
    assert str(expected) in printed


@pytest.mark.parametrize("values", [1, 3])
def test_awaiting_a_handle_gives_its_result(project, values: int) -> None:
    printed = project.script(f"""
        import asyncio, kinetic

        @kinetic.run(accelerator="cpu")
        def work(x):
            return x * x

        async def main():
            jobs = [work.run_async(x) for x in range({values})]
            print(await asyncio.gather(*(asyncio.ensure_future(wait(job)) for job in jobs)))

        async def wait(job):
            return await job

        asyncio.run(main())
    """)

    assert str([x * x for x in range(values)]) in printed
