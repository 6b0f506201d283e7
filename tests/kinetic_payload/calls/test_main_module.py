import sys

import pytest


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_of_a_job_find_the_functions_of_the_users_script(project, method):
    if method == "fork" and sys.platform == "darwin":
        pytest.skip("fork without exec is not safe on macOS")
    project.copy("pool")

    assert project.run("run.py", method, main="run.py") == "[4, 7, 10, 8] 0 True"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_of_a_job_find_classes_that_are_more_than_their_bodies(project, method):
    if method == "fork" and sys.platform == "darwin":
        pytest.skip("fork without exec is not safe on macOS")
    project.copy("classes_in_pools.py")

    assert project.run("classes_in_pools.py", method) == (
        "[5.9, 'label 7', 'mine', 1, ['a'], 2, 4, ['mine']] "
        "[True, True, True, True, True, True] True True 6"
    )


@pytest.mark.parametrize("method", ["spawn"])
def test_process_pools_of_python_m_find_the_functions_of_the_users_module(project, method):
    project.write("pkg/__init__.py", "")
    project.copy("pool", "pkg")

    printed = project.run("-m", "pkg.run", method, main="pkg/run.py", kind="module")

    assert printed == "[4, 7, 10, 8] 0 True"


def test_a_pool_under_fork_works_for_code_that_has_no_file(project):
    code = """
import multiprocessing
from shipping import ship
def work(x):
    return x + 1
def main():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(work, [1, 2])
print(ship(main))
"""
    assert project.run("-c", code, main="", kind="interactive") == "[2, 3]"


def test_changes_by_a_function_of_main_are_seen_by_other_functions(project):
    project.write(
        "run.py",
        """
        from shipping import ship
        count = 0
        def step():
            global count
            count += 1
        def read():
            import __main__
            return count, __main__.count, __main__.step is step, __file__ == __main__.__file__
        def main():
            step()
            return read()
        print(*ship(main), count)
        """,
    )

    assert project.run("run.py") == "1 1 True True 0"


def test_the_decorated_name_stays_decorated_in_main(project):
    project.write(
        "run.py",
        """
        import functools
        from shipping import ship
        def deco(function):
            @functools.wraps(function)
            def wrapper(*args):
                return "wrapped", function(*args)
            return wrapper
        @deco
        def main(depth):
            import __main__
            return main(depth - 1) if depth else __main__.main is main
        print(ship(main.__wrapped__, 1))
        """,
    )

    assert project.run("run.py") == "('wrapped', True)"


def test_nothing_of_the_users_script_is_executed_again(project):
    project.write(
        "run.py",
        """
        import os
        from shipping import ship
        with open(os.path.join(os.environ["TEST_WORKSPACE"], "ran"), "a") as file:
            file.write("x")
        def main():
            return __name__
        print(ship(main), open(os.path.join(os.environ["TEST_WORKSPACE"], "ran")).read())
        """,
    )

    assert project.run("run.py") == "__main__ x"
