"""Jobs from tests that pytest runs: functions nested in tests and in modules that tests import."""

from __future__ import annotations

from typing import Any


def test_nested_functions_read_globals_as_set_at_the_call_and_their_asserts_fail(
    project: Any,
) -> None:
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

        def test_a_module():
            assert steps.main(0.5) == (0.5, {"lr": 5}, 2)

        def test_asserts(monkeypatch):
            monkeypatch.setattr("test_steps.LIMIT", 7)

            @kinetic.run(accelerator="cpu")
            def work(x):
                assert x == LIMIT

            with pytest.raises(AssertionError, match="assert 1 == 7"):
                work(1)
        """,
    )

    done = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_steps.py")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
