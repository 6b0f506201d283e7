"""Jobs in isolated environments: `container_image="bundled"`, from the submit to the value."""

from __future__ import annotations

import json
from typing import Any

from .conftest import write_wheel

SCRIPT = """
import json
import kinetic
from steps import step

@kinetic.run(accelerator="cpu", container_image="bundled")
def work(number):
    import importlib.metadata, importlib.util, sys
    from kinetic import JobHandle
    try:
        kinetic.list_jobs()
    except kinetic.NotInsideJobError:
        refused = True
    return {
        "number": step(number),
        "stranger": importlib.metadata.version("stranger"),
        "prefix": sys.prefix,
        "refused": refused,
        "kinetic": kinetic.__file__,
        "more": [name for name in ("pytest", "msgspec") if importlib.util.find_spec(name)],
    }

if __name__ == "__main__":
    jobs = [work.run_async(number) for number in range(2)]
    print(json.dumps([job.result() for job in jobs]))
"""


def test_jobs_share_one_environment_that_holds_only_what_the_project_requires(
    project: Any,
) -> None:
    wheels = project.root / "wheels"
    wheels.mkdir()
    write_wheel(
        wheels, "stranger", "1.0", {"kinetic/__init__.py": "raise RuntimeError('a stranger')"}
    )
    project.write("uv.toml", "no-index = true\nfind-links = ['wheels']\n")
    project.write(
        "pyproject.toml", '[project]\nname = "x"\nversion = "1"\ndependencies = ["stranger>=1"]\n'
    )
    project.write(
        "steps.py",
        """
        import kinetic

        @kinetic.run(accelerator="cpu", container_image="bundled")
        def step(x, handle: kinetic.JobHandle | None = None):
            return x + 1
        """,
    )
    project.write("main.py", SCRIPT)

    submitters = [project.start("main.py") for _ in range(2)]
    ends = [submitter.communicate() for submitter in submitters]

    assert [submitter.returncode for submitter in submitters] == [0, 0], ends
    found = [one for out, _ in ends for one in json.loads(out)]
    assert sorted(one["number"] for one in found) == [1, 1, 2, 2]
    [prefix] = {one["prefix"] for one in found}
    assert prefix.startswith(str(project.home / "environments"))
    for one in found:
        assert (one["stranger"], one["refused"], one["more"]) == ("1.0", True, [])
        # The distribution's package of that name is not ours.
        assert "/light/kinetic/__init__.py" in one["kinetic"]


SCRIPT_WITH_METADATA = """
# /// script
# dependencies = ["stranger"]
# [tool.uv]
# no-index = true
# find-links = ["."]
# ///
import kinetic

@kinetic.run(accelerator="cpu", container_image="bundled")
def work():
    import stranger
    return stranger.VERSION

print(work())
"""


def test_a_script_with_metadata_gets_what_it_declares(project: Any) -> None:
    write_wheel(project.root, "stranger", "1.0", {"stranger.py": "VERSION = 1"})
    assert project.script(SCRIPT_WITH_METADATA) == "1\n"


MEMBER = """
import kinetic
import first

@kinetic.run(accelerator="cpu", container_image="bundled")
def work():
    import needed
    return first.second.__file__

if __name__ == "__main__":
    print(work())
"""


def test_members_of_a_workspace_stand_for_their_dependencies_and_travel(project: Any) -> None:
    (project.root / "wheels").mkdir()
    write_wheel(project.root / "wheels", "needed", "1.0", {"needed.py": ""})
    project.write(
        "pyproject.toml",
        "[tool.uv]\nno-index = true\nfind-links = ['wheels']\n[tool.uv.workspace]\nmembers = ['libs/*']\n",
    )
    head = '[project]\nname = "{}"\nversion = "1"\ndependencies = ["{}"]\n'
    workspace = "[tool.uv.sources]\nsecond = {workspace = true}\n"
    project.write("libs/first/pyproject.toml", head.format("first", "second") + workspace)
    project.write("libs/second/pyproject.toml", head.format("second", "needed"))
    project.write("libs/first/src/first.py", "import second")
    project.write("libs/second/src/second.py", "")
    # As an editable installation has them.
    paths = ":".join(str(project.root / f"libs/{name}/src") for name in ("first", "second"))
    for name in ("main.py", "libs/first/main.py"):
        project.write(name, MEMBER)

    refused = project.run("libs/first/main.py", PYTHONPATH=paths)
    done = [
        project.run("main.py", PYTHONPATH=paths),
        project.run("libs/first/main.py", PYTHONPATH=paths, KINETIC_PACKAGE_ROOT=str(project.root)),
    ]

    assert f"'second' is a path on this machine ({project.root}/libs/second)" in refused.stderr
    assert "KINETIC_PACKAGE_ROOT" in refused.stderr
    for one in done:
        assert one.stdout.strip().endswith("project/libs/second/src/second.py"), one.stderr
