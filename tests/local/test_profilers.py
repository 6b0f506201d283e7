"""Scripts under programs that run them: profilers, tracers, a debugger. Their jobs are those of the bare script."""

from __future__ import annotations

import pytest

PROGRAMS = {
    "python -m cProfile": ["-m", "cProfile"],
    "python -m trace": ["-m", "trace", "--listfuncs"],
    "python -m pdb": ["-m", "pdb", "-c", "continue", "-c", "quit"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_job_of_a_script_under_a_program_is_that_of_the_bare_script(project, program) -> None:
    project.copy("profilers")

    bare = project.run("main.py").stdout
    under = project.run(*PROGRAMS[program], "main.py")

    assert bare.startswith("SCRIPT __main__ ('main.py', 'main.py') (True, 3, None, None)")
    assert [line for line in under.stdout.splitlines() if line.startswith("SCRIPT")] == (
        bare.splitlines()
    ), under.stdout[-3000:] + under.stderr[-3000:]
