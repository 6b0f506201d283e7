"""What is read here and handed to uv resolves as uv would resolve the files as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from file_server import running_file_server
from locked_project import write_wheel

from kinetic_images.dependencies import read_dependencies
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.lock.uv_input import write_input
from kinetic_images.uv import Uv, find_uv, uv_environment

VERSION = "{}.{}.{}".format(*sys.version_info)
PLATFORM = f"{sys.platform}-{os.uname().machine}"
COMPILE = ("pip", "compile", "--no-header", "--no-annotate", "--python", sys.executable)

PUBLIC = {
    "alpha": ("1.0", "1.5", "2.0", "3.0a1"),
    "beta": ("1.0", "2.0"),
    "gamma": ("1.0", "2.0"),
    "mine": ("1.0", "9.0"),
    "epsilon": ("0.9", "1.2"),
    "zeta": ("0.9", "1.0"),
}
PRIVATE = {"alpha": ("1.0",), "mine": ("1.0", "1.5"), "epsilon": ("1.0",)}
LINKS = {"gamma": ("3.0",), "zeta": ("1.0", "1.1"), "mine": ("1.7",)}
NEEDS = {
    "beta-1.0": ("alpha",),
    "beta-2.0": ("alpha>=1.5", 'gamma ; extra == "x"', 'zeta ; extra == "y_z"'),
    "gamma-3.0": ("alpha<2",),
    "epsilon-1.0": ("mine",),
}


class World:
    """A public and a private index and a folder of links, as files and over HTTP; and a uv."""

    def __init__(self, folder: Path, web: str) -> None:
        self.folder = folder
        self.web = web
        self.hashes: dict[str, str] = {}
        for place, packages in (("public", PUBLIC), ("private", PRIVATE), ("my links", LINKS)):
            for name, versions in packages.items():
                page = folder / place / "simple" / name / "index.html"
                page.parent.mkdir(parents=True)
                files = [f"{name}-{version}-py3-none-any.whl" for version in versions]
                page.write_text("".join(f'<a href="../../files/{f}">{f}</a>\n' for f in files))
                for version in versions:
                    self._wheel(place, name, version)
        home = folder / "home"
        home.mkdir()
        self.environ = {
            "PATH": os.defpath,
            "HOME": str(home),
            "UV_CACHE_DIR": str(folder / "cache"),
            "WORLD": str(folder),
            "WEB": self.web,
            "LINKS": "my links",
            "lower": "nothing",
        }
        self.program = find_uv().program

    def uv(self, environ: Mapping[str, str]) -> Uv:
        return Uv(self.program, uv_environment(environ))

    def _wheel(self, place: str, name: str, version: str) -> None:
        path = self.folder / place / "files" / f"{name}-{version}-py3-none-any.whl"
        needs = NEEDS.get(f"{name}-{version}", ())
        extras = ("x", "y-z") if "extra" in str(needs) else ()
        digest = write_wheel(path, name, version, *needs, extras=extras)
        self.hashes[f"{place}/{name}-{version}"] = digest


@dataclass
class Case:
    """Files of a project, and the environment."""

    files: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    source: str = "requirements.txt"


def resolved(world: World, output: str) -> list[str]:
    """Return the packages in the output of `uv pip compile`, without the project itself."""
    lines = output.replace("${WEB}", world.web).splitlines()
    return sorted({line for line in lines if re.match(r"[a-z]+(==| @ )", line)})


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def by_uv(world: World, case: Case, folder: Path) -> list[str] | str:
    """Return what uv makes of the files themselves, or its words if it fails."""
    written(folder, case.files)
    project = folder / "project"
    done = subprocess.run(
        [world.program, *COMPILE, case.source],
        cwd=project,
        env={**world.environ, **case.environ, "UV_NO_PROGRESS": "1"},
        capture_output=True,
        text=True,
    )
    return resolved(world, done.stdout) if done.returncode == 0 else done.stderr


def by_us(world: World, case: Case, folder: Path) -> list[str] | str:
    """Return what uv makes of what is read here, or the words of the failure."""
    written(folder, case.files)
    environ = {**world.environ, **case.environ}
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        found = read_dependencies(folder / "project" / case.source, environ=environ)
        chosen = found.for_target(PLATFORM, VERSION)
        chosen.refuse_unusable(VERSION)
        given = write_input(scratch, chosen)
        output = world.uv(environ).run(
            *COMPILE,
            *given.arguments,
            folder=scratch,
            project=given.project,
        )
    except (DependencyError, InstallError) as error:
        return str(error)
    return resolved(world, output)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with running_file_server() as server:
        server.folder = folder
        yield World(folder, server.url(""))


PART = "[project]\nname = 'the_part'\nversion = '1'\ndependencies = ['zeta']\n[project.optional-dependencies]\nall = ['mine']\n"
THE_PROJECT = (
    "[project]\nname = 'the_project'\nversion = '1'\ndependencies = ['alpha<2', 'the.Part[all]']\n"
    "[project.optional-dependencies]\nall = ['beta[X]', \"The.Project[more] ; python_version > '3'\"]\n"
    "more = ['gamma', \"the-project[all] ; sys_platform == 'win32'\"]\n"
    "[tool.uv.sources]\nthe-part = {workspace = true}\n[tool.uv.workspace]\nmembers = ['p*']\n"
)
FROM_OWN = (
    "[project]\nname = 'a'\nversion = '1'\ndependencies = ['mine', 'epsilon<1']\n[tool.uv.sources]\n"
    "mine = [{index = 'own', marker = \"python_version > '3'\"}, {url = '{web}/x.whl', marker = \"python_version < '3'\"}]\n"
    "[[tool.uv.index]]\nname = 'own'\nurl = '{web}/private/simple'\nexplicit = true\n"
)
MARKED = """
alpha ; platform_release >= '1' and python_version not in '3.7 3.8'
beta[Y.z, x] ; os.name == 'posix' or python_version < '3'
gamma ; sys_platform == 'win32' or extra == 'x'
mine (>=1.0) ; python_full_version != '3.99.1'
epsilon ; implementation_version >= '3.98'
"""


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"requirements.txt": "-r sub/more.txt\n-c limits.txt\nAlpha >=0.9,<9 # why", "sub/more.txt": "beta[y-z]\n-r ../../up.txt", "../up.txt": "mine===1.0", "limits.txt": "alpha<2\nzeta<1\n-c ${LIMITS}", "more.txt": "gamma<2"}, ""),
        ({"requirements.txt": MARKED}, ""),
        ({"requirements.txt": "gamma\nmine\n-f '${WORLD}/my links/files'\n--extra-index-url ${WEB}/private/simple"}, ""),
        ({"requirements.txt": "mine\nzeta\n--no-index --find-links '../world/my links/files'"}, ""),
        ({"requirements.txt": "mine==1.0 \\\n  --hash=sha256:{mine} \\\n  --hash sha256:" + "0" * 64}, ""),
        ({"requirements.txt": "alpha\nmine @ ${WEB}/private/files/mine-1.0-py3-none-any.whl\n--only-binary alpha"}, ""),
        ({"requirements.txt": "alpha==7\nbeta"}, ""),
        ({"requirements.txt": "-e .[all] ; python_version > '3'\nalpha>1", "pyproject.toml": THE_PROJECT, "part/pyproject.toml": PART}, ""),
        ({"pyproject.toml": THE_PROJECT, "part/pyproject.toml": PART}, "pyproject.toml"),
        ({"pyproject.toml": FROM_OWN}, "pyproject.toml"),
    ],
    ids=range(10),
)  # fmt: skip
def test_files_resolve_as_they_do_for_uv_itself(
    world: World, tmp_path: Path, files: dict[str, str], source: str
) -> None:
    words = {"{web}": world.web, "{mine}": world.hashes["public/mine-1.0"]}
    texts = {}
    for name, text in files.items():
        for word, value in words.items():
            text = text.replace(word, value)
        texts[f"project/{name}"] = text
    environ = {"UV_INDEX_URL": f"{world.web}/public/simple", "LIMITS": "more.txt"}
    answers = []
    for resolve in (by_uv, by_us):
        folder = tmp_path / resolve.__name__
        folder.mkdir()
        (folder / "world").symlink_to(world.folder)
        case = Case(texts, environ, source or "requirements.txt")
        answers.append(resolve(world, case, folder))

    theirs, ours = answers
    assert theirs == ours if isinstance(theirs, list) else isinstance(ours, str)
    assert isinstance(theirs, list) is ("alpha==7" not in str(files))


def ours(world: World, folder: Path, **environ: str) -> object:
    """Return what the project in *folder* resolves to, where the user's index is the public one."""
    names = ("train", "requirements.txt", "pyproject.toml")
    source = next(name for name in names if (folder / "project" / name).exists())
    user = folder / "config" / "uv" / "uv.toml"
    if not user.exists():
        written(folder, {"config/uv/uv.toml": f"index-url = '{world.web}/public/simple'"})
    environ = {"XDG_CONFIG_HOME": f"{folder}/config", **environ}
    return by_us(world, Case(source=source, environ=environ), folder)


PROJECT = '[project]\nname = "app"\nversion = "1"\n'
LISTS = PROJECT + 'dependencies = ["mine"]\n'


@pytest.mark.parametrize(
    "files",
    [
        {"requirements.txt": "-e .", "pyproject.toml": LISTS + "[[tool.uv.index]]\nurl = '{private}'\ndefault = true"},
        {"requirements.txt": "mine", "pyproject.toml": "[[tool.uv.index]]\nurl = '{private}'"},
        {"requirements.txt": "mine", "pyproject.toml": "[tool.uv]\nindex-url = '{private}'"},
        {"requirements.txt": "mine", "pyproject.toml": "[tool.uv]\nextra-index-url = ['{private}']"},
        {"requirements.txt": "mine", "pyproject.toml": "[tool.uv.pip]\nindex-url = '{private}'"},
        {"requirements.txt": "mine", "uv.toml": "index-url = '{private}'"},
        {"requirements.txt": "mine", "../uv.toml": "index-url = '{private}'"},
        {"requirements.txt": "mine", "../config/uv/uv.toml": "index-url = '{private}'"},
        {"requirements.txt": "mine", "uv.toml": "[[index]]\nurl = '../../private/simple'"},
        {"requirements.txt": "mine", "uv.toml": "[[index]]\nurl = '../../private/files'\nformat = 'flat'\ndefault = true"},
        {"requirements.txt": "mine", "uv.toml": "no-index = true\nfind-links = ['../../private/files']"},
        {"requirements.txt": "mine\n-i ../../private/simple", "../config/uv/uv.toml": ""},
        {"requirements.txt": "mine\n-i {private}\n-i {public}\n-i {private}", "../config/uv/uv.toml": ""},
        {"requirements.txt": "mine\n--no-index\n--find-links ../../${PLACE}/files"},
        {"requirements.txt": "-r ${PLACE}.txt", "private.txt": "mine\n--extra-index-url ${PLACE_URL}"},
        {"pyproject.toml": LISTS + "[tool.uv.sources]\nmine = {index = 'p'}\n[[tool.uv.index]]\nname = 'p'\nurl = '{private}'\nexplicit = true"},
        {"pyproject.toml": LISTS + "[[tool.uv.index]]\nurl = '{private}'"},
        {"requirements.txt": "-e part", "part/pyproject.toml": LISTS + "[tool.uv.sources]\nmine = {index = 'p'}\n[[tool.uv.index]]\nname = 'p'\nurl = '{private}'\nexplicit = true"},
        {"pyproject.toml": LISTS + "[tool.uv]\ndev-dependencies = ['x']", "../pyproject.toml": "[tool.uv.workspace]\nmembers = ['p*']\n[[tool.uv.index]]\nurl = '{private}'"},
        {"pyproject.toml": LISTS + "[[tool.uv.index]]\nname = 'p'\nurl = '{public}'\nexplicit = true", "../pyproject.toml": "[tool.uv.workspace]\nmembers = ['p*']", "../uv.toml": "[[index]]\nurl = '{private}'"},
        {"requirements.txt": "mine", "uv.toml": "", "../pyproject.toml": PROJECT + "[[tool.uv.index]]\nurl = '{private}'"},
        {"pyproject.toml": LISTS, "../pyproject.toml": "[tool.uv.workspace]\nmembers = ['p*']\n[tool.uv.sources]\nmine = {index = 'p'}\n[[tool.uv.index]]\nname = 'p'\nurl = '../private/simple'\nexplicit = true"},
    ],
    ids=lambda files: "+".join(files) if isinstance(files, dict) else None,
)  # fmt: skip
def test_a_private_name_is_never_taken_from_the_public_index(
    world: World, files: dict[str, str]
) -> None:
    private, public = (f"{world.web}/{place}/simple" for place in ("private", "public"))
    with tempfile.TemporaryDirectory(dir=world.folder) as folder:
        texts = {
            f"project/{name}": text.replace("{private}", private).replace("{public}", public)
            for name, text in files.items()
        }
        found = ours(world, written(Path(folder), texts), PLACE="private", PLACE_URL=private)
        assert found == ["mine==1.5"]


@pytest.mark.parametrize("name", ["a #b", "${HOME}", "100%20"])
def test_relative_folders_hold_with_any_name_of_the_project(
    world: World, tmp_path: Path, name: str
) -> None:
    written(tmp_path / name, {"project/requirements.txt": "mine\n-f wheels\n--no-index"})
    (tmp_path / name / "project" / "wheels").symlink_to(world.folder / "private" / "files")
    assert ours(world, tmp_path / name, HOME="/nowhere") == ["mine==1.5"]


P = "[[tool.uv.index]]\nname = 'p'\nurl = '{web}/private/simple'\nexplicit = true\n"
FROM_P = "[tool.uv.sources]\nmine = {index = 'p'}\n"
ADDRESS = "mine @ ${WEB}/private/files/mine-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        *(({"requirements.txt": "alpha", "pyproject.toml": f"[tool.uv]\n{setting}\n"}, [f"alpha=={version}"]) for setting, version in (
            ("prerelease = 'allow'", "3.0a1"),
            ("constraint-dependencies = ['alpha<2']", "1.5"),
            ("override-dependencies = ['alpha==1.0']", "1.0"),
            ("resolution = 'lowest'", "1.0"),
            ("prerelease-package = {alpha = 'allow'}", "3.0a1"),
            ("[tool.uv.pip]\nprerelease = 'allow'", "3.0a1"),
        )),
        # An override takes the place of a marker, too.
        ({"requirements.txt": "alpha ; sys_platform == 'win32'\nmine ; sys_platform == 'win32'", "uv.toml": "override-dependencies = ['alpha<2', \"mine ; sys_platform == 'win32'\"]"}, ["alpha==1.5"]),
        # Settings may name variables in addresses.
        ({"requirements.txt": "mine", "uv.toml": f"constraint-dependencies = ['{ADDRESS}']"}, [ADDRESS]),
        ({"requirements.txt": "mine", "uv.toml": f"override-dependencies = ['{ADDRESS}']"}, [ADDRESS]),
        # An explicit index serves what is assigned to it and nothing else.
        ({"pyproject.toml": PROJECT + 'dependencies = ["mine", "alpha"]\n' + FROM_P + P}, ["alpha==2.0", "mine==1.5"]),
        # Only the nearest project above decides on the workspace.
        ({"../../pyproject.toml": "[tool.uv.workspace]\nmembers = ['a/*']\n" + FROM_P + P, "../pyproject.toml": "", "pyproject.toml": LISTS}, ["mine==9.0"]),
    ],
)  # fmt: skip
def test_settings_decide_as_they_do_for_uv(
    world: World, tmp_path: Path, files: dict[str, str], chosen: list[str]
) -> None:
    texts = {f"project/{name}": text.replace("{web}", world.web) for name, text in files.items()}
    found = ours(world, written(tmp_path / "b" / "a", texts), WEB=world.web)
    assert found == [one.replace("${WEB}", world.web) for one in chosen]


@pytest.mark.parametrize(
    ("metadata", "chosen"),
    [
        ("dependencies = ['mine', 'beta[y-z]']", "alpha==2.0 beta==2.0 mine==9.0 zeta==1.0"),
        ("dependencies = [\n  'alpha<2',\n  'zeta; sys_platform == \"win32\"',\n]", "alpha==1.5"),
        ("dependencies = ['mine', 'alpha']\n" + FROM_P + P, "alpha==2.0 mine==1.5"),
        ("dependencies = ['mine']\n[[tool.uv.index]]\nurl = '{web}/private/simple'", "mine==1.5"),
        ("dependencies = ['mine']\n[tool.uv]\nfind-links = ['l']\nno-index = true", "mine==1.7"),
        ("dependencies = ['alpha']\n[tool.uv]\nprerelease = 'allow'", "alpha==3.0a1"),
    ],
)
def test_the_metadata_of_a_script_decides_as_it_does_for_uv(
    world: World, tmp_path: Path, metadata: str, chosen: str
) -> None:
    block = "".join(f"# {line}\n" for line in metadata.replace("{web}", world.web).split("\n"))
    script = f"#!uv\n# /// script\n{block}# ///\nimport x\n"
    folder = written(tmp_path, {"project/train": script}) / "project"
    (folder / "l").symlink_to(world.folder / "my links" / "files")
    found = ours(world, tmp_path)
    uv = world.uv({**world.environ, "XDG_CONFIG_HOME": f"{tmp_path}/config"})
    command = ("export", "--script", "train", "--no-hashes", "--python", sys.executable)
    theirs = uv.run(*command, folder=folder, project=folder).splitlines()
    theirs = [line.partition(" ;")[0] for line in theirs if "win32" not in line]
    assert found == resolved(world, "\n".join(theirs)) == chosen.split()
