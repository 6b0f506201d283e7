"""Scripts under programs that run them: profilers, tracers, a debugger. Their jobs are those of the bare script."""

from __future__ import annotations

import pytest

SCRIPT = """
    import dataclasses, multiprocessing, os, sys
    import kinetic, helper

    @dataclasses.dataclass
    class Item:
        x: int

    COUNT = 3

    def plus(item):
        return Item(item.x + COUNT)

    @kinetic.run(accelerator="cpu")
    def job(item):
        import __main__
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pooled = pool.map(plus, [item])
        file = os.path.basename(__file__), os.path.basename(__main__.__file__)
        own = __main__.Item is Item, __main__.COUNT, __main__.__spec__, __main__.__package__
        return __name__, file, own, pooled, sys.path[0].rsplit("/")[-1], item

    if __name__ == "__main__":
        *values, item = job(Item(1))
        print("SCRIPT", *values, type(item) is Item, helper.job())
"""
HELPER = """
    import kinetic, os
    @kinetic.run(accelerator="cpu")
    def job():
        import __main__
        return os.path.basename(__main__.__file__), os.path.basename(__file__)
"""
PROGRAMS = {
    "python -m cProfile": ["-m", "cProfile"],
    "python -m trace": ["-m", "trace", "--listfuncs"],
    "python -m pdb": ["-m", "pdb", "-c", "continue", "-c", "quit"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_job_of_a_script_under_a_program_is_that_of_the_bare_script(project, program) -> None:
    project.write("helper.py", HELPER)
    project.write("main.py", SCRIPT)

    bare = project.run("main.py").stdout
    under = project.run(*PROGRAMS[program], "main.py")

    assert bare.startswith("SCRIPT __main__ ('main.py', 'main.py') (True, 3, None, None)")
    assert [line for line in under.stdout.splitlines() if line.startswith("SCRIPT")] == (
        bare.splitlines()
    ), under.stdout[-3000:] + under.stderr[-3000:]
