"""Build contexts of recipes: exactly the locked files, reproducible, and without credentials."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from building import a_recipe
from locked_project import package
from wheel_maker import locked, make_wheel

from kinetic_images.builders.dockerfile import install
from kinetic_images.builders.dockerfile.container_build import find_uv_program
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.builders.dockerfile.recipe_context import obstacle, recipe_context
from kinetic_images.builders.dockerfile.secrets import BuildSecrets
from kinetic_images.errors import BuildInputError
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.recipe import Recipe
from kinetic_images.uv import find_uv

GOLDEN = Path(__file__).parent / "golden"
UV = "0.13.9"
SDIST = package(
    "docopt", "0.6.2", file="docopt-0.6.2.tar.gz", address="https://files.test/d.tar.gz"
)
REPOSITORY = package(
    "thing",
    "",
    file="",
    sha256="8d1eb933" * 5,
    address="git+https://git.test/thing",
    subdirectory="python",
)
ARCHIVE = package("other", "", file="main.zip", address="https://git.test/o/main.zip")


def text_of(context: BuildContext, name: str) -> str:
    """Return the text of a file of *context*."""
    content = context.files[name].content
    assert isinstance(content, bytes)
    return content.decode()


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("plain", a_recipe(package(size=11053))),
        ("sources", a_recipe(package(), SDIST, REPOSITORY, ARCHIVE)),
        ("paths", a_recipe(files={"/app/a b": b"", "/app/$x": b"", "/app/\\y": b""})),
    ],
)
def test_a_context_is_the_one_that_was_reviewed(name: str, recipe: Recipe) -> None:
    context = recipe_context(recipe, UV)

    for file in ("Dockerfile", "pylock.toml"):
        made = text_of(context, "install/pylock.toml" if file == "pylock.toml" else file)
        assert (GOLDEN / f"{name}.{file}").read_text() == made


def test_an_archive_does_not_depend_on_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    context = BuildContext({"z": ContextFile(path, executable=True), "a": ContextFile(b"1")})
    archives = []
    for mode in (0o600, 0o666):
        path.chmod(mode)
        stream = io.BytesIO()
        context.write_archive(stream, compressed=True)
        archives.append(stream.getvalue())

    assert archives[0] == archives[1]
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as archive:
        found = [(each.name, each.mode, each.uid, each.mtime) for each in archive]
    assert found == [(".", 0o755, 0, 0), ("a", 0o644, 0, 0), ("z", 0o755, 0, 0)]


def a_wheel(folder: Path) -> LockedPackage:
    """Return a wheel in *folder*, with a command, a data file and a package."""
    files = {
        "demo/__init__.py": "def main():\n    print('runs')\n",
        "{data}/data/share/demo/x.txt": "x",
    }
    return locked(
        make_wheel(folder, files, entry_points="[console_scripts]\ndemo-command = demo:main\n")
    )


def test_files_of_this_machine_travel_with_the_context_unless_they_changed(tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path)

    context = recipe_context(a_recipe(wheel), UV)

    assert context.files[f"install/packages/{wheel.file}"].content == tmp_path / wheel.file
    assert f'path = "packages/{wheel.file}"' in text_of(context, "install/pylock.toml")
    assert str(tmp_path) not in text_of(context, "install/pylock.toml")
    with pytest.raises(BuildInputError, match="has changed since it was locked"):
        _ = recipe_context(a_recipe(replace(wheel, sha256="0" * 64)), UV).digest
    (tmp_path / wheel.file).unlink()
    with pytest.raises(BuildInputError, match=rf"{wheel.file}.* cannot be read"):
        recipe_context(a_recipe(wheel), UV).write_archive(io.BytesIO(), compressed=False)


@pytest.mark.parametrize(
    ("recipe", "environment", "message"),
    [
        (a_recipe(package(address="https://me:pw1@files.test/x.whl")), {}, "files.test/x.whl"),
        (a_recipe(), {"UV_DEFAULT_INDEX": "https://me:pw1@index.test/"}, "index.test"),
    ],
)
def test_input_that_a_build_must_not_have_is_refused(
    recipe: Recipe, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(BuildInputError, match=message) as caught:
        recipe_context(recipe, UV, environment=environment)

    assert "pw1" not in str(caught.value)
    assert obstacle(recipe) is None
    # Another builder may have a key.
    ssh = package(file="", address="git+ssh://git@git.test/x")
    assert "by https only" in (obstacle(a_recipe(ssh)) or "")


def test_the_uv_of_this_machine_is_used_only_where_it_runs() -> None:
    here, other = sorted(("x86_64", "aarch64"), key=lambda name: name != platform.machine())

    assert (find_uv_program(here)[1] is not None) is (sys.platform == "linux")
    assert find_uv_program(other) == (find_uv_program(here)[0], None)


def test_without_packages_no_uv_travels(tmp_path: Path) -> None:

    assert (
        "install/uv"
        not in recipe_context(replace(a_recipe(), packages=()), UV, tmp_path / "uv").files
    )
    assert recipe_context(a_recipe(), UV, tmp_path / "uv").files["install/uv"].executable


NETRC = (
    'machine a login u password s3cretword\nmachine b login u password "two words"\n'
    'machine c login "t0ken-as-user" password ""\nmachine d login "u" password "q\\\\uo\\"te"\n'
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("get https://u:x@a/b", "get https://a/b"),
        ("token s3cretword!", "token ***!"),
        ("a two words b", "a *** b"),
        ("with t0ken-as-user", "with ***"),
        ('with q\\uo"te', "with ***"),
        ("\x1b[1mbold\x1b[0m \x07", "bold \\x07"),
        ("nothing", "nothing"),
        ("    indented  ", "    indented"),
    ],
)
def test_a_line_of_a_log_is_cleaned(line: str, expected: str) -> None:
    assert BuildSecrets(netrc=NETRC).clean(line) == expected


def test_secrets_are_files_only_while_they_are_used(tmp_path: Path) -> None:
    secrets = BuildSecrets(netrc=NETRC, ca=tmp_path / "ca.pem")

    with secrets.files() as files:
        assert files["netrc"].read_text() == NETRC
        assert files["netrc"].stat().st_mode & 0o777 == 0o600
        assert files["ca"] == tmp_path / "ca.pem"
    assert not files["netrc"].exists()
    assert "s3cretword" not in repr(secrets)


def test_installed_files_are_arranged_as_the_image_has_them(tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path)
    prefix = tmp_path / "prefix"
    find_uv().run(
        *("pip", "install", "--offline", "--no-index", "--no-deps", "--python", sys.executable),
        *("--prefix", str(prefix), str(tmp_path / wheel.file)),
    )
    (prefix / "bin").mkdir(exist_ok=True)

    install.arrange(prefix, f"python{sys.version_info[0]}.{sys.version_info[1]}")

    script = (prefix / "bin" / "demo-command").read_bytes()
    assert script.startswith(b"#!/usr/bin/env python3\n")
    assert sorted(path.name for path in prefix.iterdir()) == ["bin", "share", "site"]
    rows = {row[0]: row for row in csv.reader((prefix / "site/demo-1.0.dist-info/RECORD").open())}
    for name, digest, size in rows.values():
        path = prefix / "site" / name
        assert path.is_file(), name
        if digest:
            data = path.read_bytes()
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(data))
    assert {"../bin/demo-command", "../share/demo/x.txt", "demo/__init__.py"} <= set(rows)


def test_another_python_than_the_target_ends_the_installation(tmp_path: Path) -> None:
    (tmp_path / "install").mkdir()
    settings = {"environment": {}, "packages": 0, "uv": "1"}
    (tmp_path / "install" / "settings.json").write_text(json.dumps(settings))

    done = subprocess.run(
        [sys.executable, "-I", install.__file__, tmp_path, tmp_path / "prefix", "2.7"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "the packages were chosen for 2.7" in done.stderr
    assert not (tmp_path / "prefix").exists()
