"""What a handle does besides collecting: follow a log, run the job again here."""

from __future__ import annotations

from typing import Any


def test_a_loop_over_a_handle_follows_a_job_that_waits_and_ctrl_c_leaves_it_alone(
    project: Any,
) -> None:
    script = """
        import os, signal, time
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            time.sleep(0.5)
            print("one", flush=True)
            time.sleep(0.5)
            print("two")
            return 3

        def until_stopped(job):
            for line in job:
                print("seen", line)
                os.kill(os.getpid(), signal.SIGINT)

        job = work.run_async()
        try:
            until_stopped(job)
        except KeyboardInterrupt:
            print(job.status().value)
        print(*job, sep=",")
        print(job.result())
    """
    assert project.script(script).splitlines() == ["seen one", "RUNNING", "one,two", "3"]
