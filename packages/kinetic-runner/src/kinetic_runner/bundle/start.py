"""Start-up code of the bundle: make its modules importable, then run parent or child."""

# This file becomes `__main__.py` of the bundle. Any Python must be able to print its error.
import os
import sys


def start():  # type: ignore[no-untyped-def]  # annotations would not parse everywhere
    """Import our packages from the bundle, and all others from elsewhere if they are there."""
    if sys.version_info < (3, 11):  # noqa: UP036  # whatever `python3` is
        version = "%d.%d" % sys.version_info[:2]  # noqa: UP031
        sys.stderr.write(
            "kinetic: this job needs Python 3.11 or newer; %s is Python %s.\n"  # noqa: UP031
            % (sys.executable, version)
        )
        sys.exit(2)
    bundle = os.path.abspath(sys.path[0])  # noqa: PTH100  # user code may change the folder
    sys.path[0] = bundle
    # Once they are imported, their submodules come from here, whatever else is installed.
    import kinetic_payload  # noqa: F401
    import kinetic_runner  # noqa: F401

    del sys.path[0]
    sys.path += [bundle, bundle + "/light"]
    if sys.argv[1:2] == ["--child"]:
        from kinetic_runner.child.main import run_child

        run_child(sys.argv[2:])
    else:
        from kinetic_runner.parent.main import run_parent

        run_parent(sys.argv[1:], bundle)


if __name__ == "__main__":
    start()  # type: ignore[no-untyped-call]
