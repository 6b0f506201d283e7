from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from kinetic_images.builders.image_layout import path_files

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
REPORT = "import sys, json; print(json.dumps([sys.path, sorted(vars(sys.modules['__main__']))]))"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter whose packages are found as in an image, in the folder `site`."""
    site = tmp_path / "site"
    (site / "vendored").mkdir(parents=True)
    (site / "more.pth").write_text("vendored\nimport sys; sys.from_pth = True\n")
    (site / "json.py").write_text("raise SystemExit('not the standard library')\n")
    (site / "shared.py").write_text("OURS = True\n")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    packages = next((tmp_path / "env/lib").glob("python*/site-packages"))
    (packages / "shared.py").write_text("OURS = False\n")
    (packages / "zzz.pth").write_text(f"{tmp_path}\n")
    for path, data in path_files(VERSION).items():
        if path.endswith("site-packages/000_kn.pth"):
            (packages / "000_kn.pth").write_bytes(data.replace(b"/opt/kn/site", str(site).encode()))
    return tmp_path / "env/bin/python"


def run(python: Path, code: str, *options: str, **variables: str) -> str:
    command = [python, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, check=True, env=variables)
    assert done.stderr == b""
    return done.stdout.decode()


@pytest.mark.parametrize("options", [[], ["-I"], ["-s"]], ids=" ".join)
def test_our_packages_come_after_the_standard_library_and_before_the_bases(
    python: Path, tmp_path: Path, options: list[str]
) -> None:
    path, names = json.loads(run(python, REPORT, *options))

    ours = path.index(str(tmp_path / "site"))
    assert path[ours + 1] == str(tmp_path / "site/vendored")
    first = next(
        number
        for number, folder in enumerate(path)
        if folder.endswith(("/site-packages", "/dist-packages"))
    )
    assert ours + 2 == first
    assert any(folder.endswith("lib-dynload") for folder in path[:ours])
    assert len(path) == len(set(path))
    assert not {"site", "before", "added", "first"} & set(names)
    # `.pth` files work, and the standard library is not replaced.
    code = "import sys, json, shared; print(sys.from_pth, shared.OURS, json.__name__)"
    assert run(python, code, *options) == "True True json\n"


def test_packages_of_a_job_come_before_ours_and_those_of_a_home_do_not(
    python: Path, tmp_path: Path
) -> None:
    installed = tmp_path / "user/site-packages"
    installed.mkdir(parents=True)
    (installed / "shared.py").write_text("OURS = 'installed'\n")
    packages = next((tmp_path / "env/lib").glob("python*/site-packages"))
    # What `site` does outside of virtual environments.
    code = (
        f"import site; [site.addsitedir(each) for each in ({str(installed)!r}, {str(packages)!r})]"
    )
    code += "; import shared; print(shared.OURS)"

    assert run(python, code, "-S") == "True\n"
    assert run(python, code, "-S", KINETIC_PACKAGES=str(installed)) == "installed\n"


def test_a_base_without_our_folder_starts_without_a_message(python: Path, tmp_path: Path) -> None:
    (tmp_path / "site").rename(tmp_path / "gone")

    assert run(python, "print(1)") == "1\n"


def test_the_finder_is_where_debian_and_slim_images_look() -> None:
    folder = "/usr/local/lib/python3.12"
    paths = {f"{folder}/{name}-packages/000_kn.pth" for name in ("dist", "site")}
    assert set(path_files("3.12")) == paths
