"""Modules that only the function imports, and that did not travel: what the exception says of them."""

from __future__ import annotations

import json
import sys
from typing import Any


def test_an_exception_says_where_the_module_lies_and_what_would_ship_it(project) -> None:
    place = project.write("../shared/helper.py", "raise RuntimeError('imported here')\n")
    project.write("pack/secret.py", "raise RuntimeError('imported here')\n")
    project.write(".gitignore", "secret.py\n")
    project.write("deep/elsewhere.py", "raise RuntimeError('imported here')\n")
    project.write("steps.py", "def work():\n    import helper\n")
    project.write("pack/__init__.py", "")
    root, shared = project.root, place.resolve().parent
    project.copy("missing_modules.py")
    printed = project.output("missing_modules.py", PYTHONPATH=str(shared))
    ended: dict[str, Any] = json.loads(printed.splitlines()[-1])

    at = f"The module 'helper' lies at {shared}/helper.py on this machine, outside the project that"
    ways = (
        "move it into the project",
        "import it at the top of the script or notebook",
        f"KINETIC_PACKAGE_ROOT={shared.parent}",
    )
    for name, kind in (
        ("outside", "ModuleNotFoundError"),
        ("wrapped", "RuntimeError"),
        ("work", "ModuleNotFoundError"),
    ):
        assert ended[name][0] == kind
        (note,) = ended[name][1]
        assert note.startswith(f"{at} was shipped, {root}.")
        assert all(way in note for way in ways)
    assert "left out of the snapshot" in ended["ignored"][1][0]
    assert f"!/pack/secret.py into {root}/.kineticignore" in ended["ignored"][1][0]
    assert f"{root}/deep/elsewhere.py" in ended["late"][1][0]
    assert "not on sys.path" in ended["late"][1][0]
    assert ended["nowhere"] == ["ModuleNotFoundError", []]


def test_the_advice_ships_it(project) -> None:
    place = project.write("../shared/helper.py", "VALUE = 42\n")
    shared = place.resolve().parent
    code = """
        import kinetic
        {top}
        @kinetic.run(accelerator="cpu")
        def work():
            import helper
            return helper.VALUE
        print(work())
    """
    printed = project.script(
        code.format(top=""), PYTHONPATH=str(shared), KINETIC_PACKAGE_ROOT=str(shared.parent)
    )
    assert printed == "42\n"
    assert (
        project.script(
            code.format(top="import helper").replace("            import helper\n", "", 1),
            PYTHONPATH=str(shared),
        )
        == "42\n"
    )


def test_a_package_that_the_jobs_environment_lacks_is_named_with_its_version(project) -> None:
    project.write("requirements.txt", "")
    project.write(
        "steps.py",
        """
        import kinetic

        @kinetic.run(accelerator="cpu", container_image="bundled")
        def work():
            import pytest
        """,
    )
    done = project.run("-c", "import steps; steps.work()")

    import pytest

    assert (
        f"The module 'pytest' is installed on this machine (pytest {pytest.__version__}) and not in "
        "the job's environment: add it to the project's requirements."
    ) in done.stderr


def test_another_process_says_where_the_module_lies(project) -> None:
    place = project.write("../shared/helper.py", "")
    shared = str(place.resolve().parent)
    job_id = project.script(
        """
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            import helper

        print(work.run_async().job_id)
        """
    ).strip()

    code = f"import kinetic; kinetic.attach({job_id!r}).result()"
    done = project.run("-c", code, PYTHONPATH=shared)

    assert f"'helper' lies at {shared}/helper.py on this machine. To ship it" in done.stderr
    assert "helper" not in sys.modules
