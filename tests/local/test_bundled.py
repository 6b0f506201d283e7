"""Jobs in isolated environments: `container_image="bundled"`, from the submit to the value."""

from __future__ import annotations

import json
import zipfile
from typing import Any

SCRIPT = """
import json, sys
import kinetic

@kinetic.run(accelerator="cpu", container_image="bundled")
def work(number):
    import alpha

    def has(name):
        try:
            __import__(name)
        except ImportError:
            return False
        return True

    return [number, alpha.version, sys.prefix, has("pytest")]

if __name__ == "__main__":
    jobs = [work.run_async(number) for number in range(int(sys.argv[1]))]
    print(json.dumps([job.result() for job in jobs]))
"""


def a_wheel(project: Any, name: str, version: str) -> None:
    folder = project.root / "wheels"
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version!r}\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_ten_jobs_share_one_environment_that_holds_what_is_required_alone(project) -> None:
    a_wheel(project, "alpha", "2.0")
    project.write("requirements.txt", "--no-index\n--find-links wheels\nalpha\n")
    project.write("main.py", SCRIPT)
    first, second = (project.start("main.py", "5") for _ in range(2))

    ends = [process.communicate() for process in (first, second)]

    found = [one for out, _ in ends for one in json.loads(out)]
    assert sorted(number for number, *_ in found) == sorted([*range(5), *range(5)])
    assert {version for _, version, *_ in found} == {"2.0"}
    [prefix] = {prefix for _, _, prefix, *_ in found}
    assert prefix.startswith(str(project.home / "environments"))
    assert {has_pytest for *_, has_pytest in found} == {False}


def test_a_project_with_nothing_but_a_pyproject_names_its_dependencies_there(project) -> None:
    a_wheel(project, "alpha", "1.0")
    project.write(
        "pyproject.toml", '[project]\nname = "x"\nversion = "1"\ndependencies = ["alpha>=1"]\n'
    )
    project.write("main.py", SCRIPT)

    project.write("uv.toml", "no-index = true\nfind-links = ['wheels']\n")
    done = project.run("main.py", "1")

    assert done.returncode == 0, done.stderr
    [[_, version, *_]] = json.loads(done.stdout)
    assert version == "1.0"
