"""What the program set in the project's modules, for code by value and by reference."""

from __future__ import annotations


def test_the_state_of_modules_is_the_same_there_whoever_reads_it(project):
    project.copy("state")

    assert project.run("run.py") == "right"


def test_a_change_that_cannot_travel_is_a_warning_of_the_submit(project):
    project.write_all("""
        # lib.py
        import logging
        CLIENT, CACHE, LOG, made = None, {}, logging.getLogger("lib"), None
        def use(): return CLIENT, len(CACHE)
        def make():
            global made
            made = made or open(__file__)
            CACHE["large"] = bytes(5_000_000)
        # optional.py
        import lib, os
        if "workspace" in os.path.abspath(__file__): raise RuntimeError("no display")
        shown = None
        # run.py
        import threading
        import lib, optional
        from shipping import WORKSPACE, dump, ship
        class Model: size = 3
        model = optional.shown = Model()
        lib.make()
        lib.CLIENT = threading.Lock()
        print(*dump(lib.use).warnings, sep="\\n")
        lib.CLIENT = 5
        print(ship(lib.use), ship(lambda: model.size), [(WORKSPACE / "warnings.txt").read_text()])
    """)

    *warnings, values = project.run("run.py").splitlines()
    warnings.sort()

    assert [text.partition(":")[0] for text in warnings] == [
        "lib.CACHE was set since the import",
        "lib.CLIENT was set since the import",
    ]
    assert "is larger than 1 MB" in warnings[0]
    assert "cannot be pickled" in warnings[1]
    assert all("Pass it as an argument" in text for text in warnings)
    # A module that the job cannot import is not read there.
    assert values == "(5, 0) 3 ['']"


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


def test_objects_of_modules_keep_their_shape_and_the_job_s_own_paths(project):
    project.copy("shapes")

    assert project.run("run.py") == "(1, (2, True, True, True), [0, 2], True, True)"
