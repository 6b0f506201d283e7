"""What the program set in the project's modules, for code by value and by reference."""

from __future__ import annotations


def test_the_state_of_modules_is_the_same_there_whoever_reads_it(project):
    project.copy("state")

    assert project.run("run.py") == "right"


def test_settings_of_a_notebook_s_cells_hold_there(project):
    project.write_all("""
        # lib.py
        opt = max(1, 2)
        def read(): return opt
        # run.py
        import sys, types
        from shipping import ship
        main = vars(sys.modules["__main__"])
        del main["__file__"]
        In = ["", "import lib", "lib.opt = 7", "%time lib.read()"]
        for cell in In[:-1]:
            exec(cell, main)
        print(ship(lib.read))
    """)

    assert project.run("run.py", main="", kind="notebook") == "7"
