"""Start-up code of the bundle: make its modules importable, then run parent or child."""

# This file becomes `__main__.py` of the bundle. Any version of Python must be able to print its error.
import os
import sys


def start():  # type: ignore[no-untyped-def]  # annotations would not parse everywhere
    """Import Kinetic's packages from the bundle; prefer installed versions of all other packages."""
    if sys.version_info < (3, 11):  # noqa: UP036  # `python3` may be any version
        version = "%d.%d" % sys.version_info[:2]  # noqa: UP031
        sys.stderr.write(
            "kinetic: this job needs Python 3.11 or newer; %s is Python %s.\n"  # noqa: UP031
            % (sys.executable, version)
        )
        sys.exit(2)
    bundle = os.path.abspath(sys.path[0])  # noqa: PTH100  # user code may change the folder
    sys.path[0] = bundle
    # Once imported, their submodules come from the bundle, even if other versions are installed.
    import kinetic_payload  # noqa: F401
    import kinetic_runner  # noqa: F401

    del sys.path[0]
    sys.path += [bundle, bundle + "/light"]
    if sys.argv[1:2] == ["--beside"]:
        from kinetic_runner.child.beside import run_beside

        run_beside(sys.argv[2:])
    arguments = sys.argv[2:]
    if sys.argv[1:2] != ["--child"]:
        from kinetic_runner.parent.main import run_parent

        arguments = run_parent(sys.argv[1:], bundle)
    from kinetic_runner.child.main import run_child

    run_child(arguments)


if __name__ == "__main__":
    start()  # type: ignore[no-untyped-call]
