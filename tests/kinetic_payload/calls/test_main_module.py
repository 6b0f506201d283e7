import sys

import pytest


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_of_a_job_find_functions_and_classes_of_main(project, method):
    if method == "fork" and sys.platform == "darwin":
        pytest.skip("fork without exec is not safe on macOS")
    project.copy("pool")

    printed = project.run("run.py", method)

    assert printed.splitlines() == [
        "[4, 7, 10, 8] 0 True",
        "13.8 True",
    ]


def test_functions_of_main_share_its_globals_and_its_code_does_not_run_again(project):
    project.write_all("""
        # run.py
        import functools, os
        from shipping import ship
        with open(os.path.join(os.environ["TEST_WORKSPACE"], "ran"), "a") as file:
            file.write("x")
        count = 0
        def step():
            global count
            count += 1
        def read():
            import __main__
            return count, __main__.count, __main__.step is step, __file__ == __main__.__file__
        def deco(function):
            @functools.wraps(function)
            def wrapper(*args):
                return "wrapped", function(*args)
            return wrapper
        @deco
        def decorated(depth):
            import __main__
            return decorated(depth - 1) if depth else __main__.decorated is decorated
        def main():
            step()
            return *read(), __name__, decorated.__wrapped__(1)
        print(*ship(main), count)
        print(ship(decorated.__wrapped__, 1))
        print(open(os.path.join(os.environ["TEST_WORKSPACE"], "ran")).read())
    """)

    assert project.run("run.py").splitlines() == [
        "1 1 True True __main__ ('wrapped', True) 0",
        "('wrapped', True)",
        "x",
    ]
