"""Processes that user code forks and that leave the function; more of them in `test_pipeline`."""

from __future__ import annotations


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
    assert done.outcome["succeeded"]
    assert lines[:4] == ["0", "7", "no", "1"]
    assert lines[-3:] == ["GeneratorExit: g", "1", "cleaned up"]
    assert lines.count("cleaned up") == 1
