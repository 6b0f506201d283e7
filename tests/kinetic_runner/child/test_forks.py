"""Processes that user code forks and that leave the function; more of them in `test_pipeline`."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("end", "code"), [("return", 0), ("sys.exit(7)", 7), ("sys.exit('no')", 1)]
)
def test_a_process_forked_by_user_code_that_comes_back_reports_nothing(runner, end, code):
    done = runner.run(
        f"""
        import atexit
        atexit.register(print, "cleaned up")
        if os.fork() == 0:
            {end}
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """,
    )

    assert done.outcome["succeeded"]
    assert done.log.splitlines()[-2:] == [b"%d" % code, b"cleaned up"]
    assert done.log.count(b"cleaned up") == 1


def test_a_forked_process_ends_with_its_traceback_as_in_a_script(runner) -> None:
    done = runner.run(
        """
        from kinetic_runner.child.forks import leave_if_forked
        me = os.getpid()
        if os.fork() == 0:
            try:
                int("in the fork")
            except ValueError as error:
                leave_if_forked(me, error)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )

    *_, raised, code = done.log.decode().splitlines()
    assert raised.startswith("ValueError: invalid literal")
    assert code == "1"
