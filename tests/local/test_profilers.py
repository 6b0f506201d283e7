"""Scripts under programs that run them, a profiler and a debugger: their jobs are those of the bare script."""

from __future__ import annotations

PROGRAMS = {
    "python -m cProfile": ["-m", "cProfile"],
    "python -m pdb": ["-m", "pdb", "-c", "continue", "-c", "quit"],
}


def test_jobs_of_a_script_under_a_program_are_those_of_the_bare_script(project) -> None:
    project.copy("profilers")

    bare = project.output("main.py").splitlines()

    assert bare[0].startswith("SCRIPT __main__ ('main.py', 'main.py') (True, 3, None, None)")
    for program, arguments in PROGRAMS.items():
        under = project.run(*arguments, "main.py")
        printed = [line for line in under.stdout.splitlines() if line.startswith("SCRIPT")]
        assert printed == bare, program + under.stdout[-3000:] + under.stderr[-3000:]
