"""Jobs from tests that pytest runs: functions nested in tests and in what tests import."""

from __future__ import annotations


def test_nested_functions_read_what_is_set_at_the_call_and_their_asserts_fail(project) -> None:
    project.write(
        "steps.py",
        """
        import kinetic
        CONFIG, RATE = {"lr": 1}, 0.1

        def main(rate):
            global RATE
            RATE = rate
            CONFIG["lr"] = 5

            @kinetic.run(accelerator="cpu")
            def work(x):
                return RATE, CONFIG, x

            return work(2)
        """,
    )
    project.write(
        "test_steps.py",
        """
        import kinetic, pytest, steps
        LIMIT = 1

        def test_a_module(monkeypatch):
            assert steps.main(0.5) == (0.5, {"lr": 5}, 2)

        def test_asserts(monkeypatch):
            monkeypatch.setattr("test_steps.LIMIT", 7)

            @kinetic.run(accelerator="cpu")
            def work(x):
                assert x == LIMIT
                return LIMIT

            assert work(7) == 7
            with pytest.raises(AssertionError, match="assert 1 == 7"):
                work(1)
        """,
    )

    done = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_steps.py")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_what_is_set_and_cannot_travel_is_refused_at_submit_or_named_by_the_job(project) -> None:
    project.write(
        "steps.py",
        """
        import kinetic, threading
        CLIENT, MADE = None, int("1")

        def main(name):
            globals()[name] = threading.Lock()

            @kinetic.run(accelerator="cpu")
            def work():
                return CLIENT, MADE

            try:
                work()
            except kinetic.KineticError as error:
                print(type(error).__name__, error)
            globals()[name] = None if name == "CLIENT" else 1
        """,
    )

    printed = project.script("import steps; steps.main('CLIENT'); steps.main('MADE')")

    assert (
        "Error The function reads 'CLIENT' of the module 'steps', which was a _thread.lock"
        in printed
    )
    assert "JobFailedError" in printed
    assert "reads 'MADE' of the module 'steps', which was a _thread.lock at the call" in printed
