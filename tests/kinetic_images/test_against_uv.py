"""What is read here and handed to uv resolves as uv would resolve the files as they are.

Outside of CI, for more cases: `PYTHONPATH=tests/tools python tests/kinetic_images/test_against_uv.py COUNT [FIRST_SEED]`.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from locked_project import write_wheel
from package_server import running_package_server

from kinetic_images.dependencies import read_dependencies
from kinetic_images.errors import DependencyError, InstallError
from kinetic_images.lock.uv_input import write_input
from kinetic_images.uv import Uv, find_uv, uv_environment

IN_CI = 50
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


@contextmanager
def running_world(folder: Path) -> Iterator[World]:
    with running_package_server(folder) as server:
        yield World(folder, server.url.rstrip("/"))


@dataclass
class Case:
    """Files of a project; `plain` has those that uv's reader cannot take, in words that it can."""

    files: dict[str, str | bytes] = field(default_factory=dict)
    plain: dict[str, str | bytes] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    """What uv is told on its command line: options that it does not take from files."""
    environ: dict[str, str] = field(default_factory=dict)
    source: str = "requirements.txt"
    minor: bool = False
    """The target's patch version is not known."""


def resolved(world: World, output: str) -> list[str]:
    """Return the packages in the output of `uv pip compile`, without the project itself."""
    lines = output.replace("${WEB}", world.web).splitlines()
    return sorted({line for line in lines if re.match(r"[a-z]+(==| @ )", line)})


def written(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def by_uv(world: World, case: Case, folder: Path) -> list[str] | str:
    """Return what uv makes of the files themselves, or its words if it fails."""
    written(folder, {**case.files, **case.plain})
    project = folder / "project"
    done = subprocess.run(
        [world.program, *COMPILE, *case.arguments, case.source],
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
        version = VERSION.rpartition(".")[0] if case.minor else VERSION
        chosen = found.for_target(PLATFORM, version)
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


class Generator:
    """Makes cases from a seed: the same ones everywhere."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.case = Case()
        self.has_index = False
        self.prerelease = False
        self.project = False

    def make(self) -> Case:
        if self.maybe(0.25):
            self.pyproject(as_source=True)
        else:
            if self.maybe(0.3):
                self.pyproject(as_source=False)
            self.requirements("requirements.txt", 3, constraint=False)
        self.case.minor = self.maybe(0.3)
        if self.maybe(0.2):
            self.case.environ[self.one("UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL")] = (
                self.address(self.one("public", "private"))
            )
        # Were one to ask the network, the case would not be the same everywhere.
        if not any(name == "UV_DEFAULT_INDEX" for name in self.case.environ):
            self.case.environ.setdefault("UV_INDEX_URL", self.address("public"))
        if self.prerelease:
            self.case.arguments.append("--prerelease=allow")
        return self.case

    # Choices

    def maybe(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def blank(self) -> str:
        return self.one("", "", " ", "  ", "\t")

    def address(self, place: str, *, relative_to: str | None = None) -> str:
        """Return an index: over HTTP, as a file's URL, or as a path from a folder below the case's."""
        web = f"{self.world.web}/{place}/simple"
        file = (self.world.folder / place / "simple").as_uri()
        credentials = web.replace("http://", "http://me:secret@")
        choices = [web, f"{web}/", file, credentials]
        if relative_to is not None:
            # A link in the case's folder leads to the world.
            up = "../" * (relative_to.count("/") + 1) if relative_to else ""
            choices += [f"{up}world/{place}/simple"] * 3
        return self.one(*choices)

    # Requirements

    def requirement(self, *, wrong: float = 0.0) -> str:
        name = self.one("alpha", "alpha", "beta", "beta", "gamma", "mine", "zeta", "epsilon")
        if self.maybe(wrong):
            return self.one("nothing", "alpha==7", "alpha=1", "six @", "alpha >= ", "!alpha")
        written = self.one(name, name, name.capitalize(), name.upper())
        if name == "beta" and self.maybe(0.5):
            written += self.blank() + self.one("[x]", "[ X ]", "[x,Y.z]", "[y-z]", "[]", "[nope]")
        if self.maybe(0.1):
            path = f"{name}-1.0-py3-none-any.whl"
            address = self.one("${WEB}", self.world.web) + f"/private/files/{path}"
            if name in PRIVATE:
                written = f"{name}{self.blank()}@ {address}"
                return written + (f" {self.marker()}" if self.maybe(0.3) else "")
        if self.maybe(0.6):
            blank = self.blank()
            specifier = self.one(
                "==1.0", ">=0.9", "<9", "<2", "~=1.0", "!=2.0", ">=1.0,<2.0", f">=1.0 ,{blank}<9",
                "==1.*", "===1.0", f">{blank}0.1", "(>=1.0)", ">=0.9a0", "!=1.5,>0.5",
            )  # fmt: skip
            written += blank + specifier
        if self.maybe(0.35):
            written += self.blank() + self.marker()
        return written

    def marker(self) -> str:
        quote = self.one("'", '"')
        minor = VERSION.rpartition(".")[0]
        marker = self.one(
            f"python_version >= {quote}3.9{quote}", f"python_version<{quote}3.9{quote}",
            f"python_version == '{minor}'", f"python_version != '{minor}.*'",
            f"python_version ~= '{minor}'", f"python_version in '3.7 {minor}'",
            f"python_version not in '3.7 {minor}'", f"'{minor}' <= python_version",
            f"python_full_version > {quote}{minor}.0{quote}", f"python_full_version < '{minor}.1'",
            f"python_full_version == '{VERSION}'", f"python_full_version != '{VERSION}'",
            f"python_full_version <= '{minor}.99' and python_full_version >= '{VERSION}'",
            f"implementation_version >= '{minor}.1'", "sys_platform == 'win32'",
            f"sys_platform == {quote}{sys.platform}{quote}", f"'{sys.platform[:3]}' in sys_platform",
            "sys_platform not in 'win32 cygwin'",
            "os_name == 'posix' and (python_version < '3' or platform_system != 'Windows')",
            "platform_python_implementation == 'CPython'", "implementation_name != 'cpython'",
            "platform_release >= '1'", "platform_release == ''", "platform_version != ''",
            f"platform_machine == '{os.uname().machine}'", "extra == 'x'", "extra != 'x'",
            "python_version < '3' and extra == 'x'", "python_version > '3' or extra == 'x'",
            "os.name == 'posix'", "sys.platform == 'win32'",
        )  # fmt: skip
        return f";{self.blank()}{marker}"

    def hashes(self) -> str:
        """Return a requirement with hashes, some of them wrong."""
        name, version = self.one("alpha", "mine"), "1.0"
        digests = [
            self.world.hashes[f"{place}/{name}-{version}"] for place in ("public", "private")
        ]
        digests += ["0" * 64]
        self.random.shuffle(digests)
        chosen = digests[: self.random.randint(1, 3)]
        between = self.one(" ", "  ", " \\\n    ", "\t\\\n\t")
        equals = self.one("=", " ")
        return f"{name}=={version}" + "".join(f"{between}--hash{equals}sha256:{d}" for d in chosen)

    # Files

    def requirements(self, name: str, depth: int, *, constraint: bool) -> None:
        """Add a requirements file, with what it includes."""
        lines: list[tuple[str, str]] = []
        for _ in range(self.random.randint(1, 5)):
            lines += self.lines(name, depth, constraint=constraint)
        if not constraint and self.maybe(0.9):
            lines.append((self.requirement(),) * 2)
        self.random.shuffle(lines)
        end = self.one("\n", "\n", "\r\n", "\r")
        ours = end.join(one for one, _ in lines).replace("\n", end) if end != "\r\n" else ""
        ours = ours or end.join(one.replace("\n", end) for one, _ in lines)
        plain = "\n".join(one for _, one in lines)
        text = ours + self.one("", end, end * 3)
        encoding = self.one("utf-8", "utf-8", "utf-8-sig", "utf-16")
        if any(mine != theirs for mine, theirs in lines) or encoding == "utf-16":
            self.case.plain[f"project/{name}"] = plain
        self.case.files[f"project/{name}"] = text.encode(encoding)

    def lines(self, name: str, depth: int, *, constraint: bool) -> list[tuple[str, str]]:
        folder = name.rpartition("/")[0]
        kind = self.random.random()
        if self.project and not constraint and self.maybe(0.25):
            extras = self.one("", "", "[all]", "[more]", "[all,more]")
            line = self.one("-e .", ".", "-e ./", "-e  .", "-e part", "-e ./part") + extras
            return [(line + (f" {self.marker()}" if self.maybe(0.3) else ""),) * 2]
        if kind < 0.42:
            line = self.requirement(wrong=0.01)
            if self.maybe(0.2):
                line += self.one(" # why", "\t# -r nothing.txt", "  #", " # kn:keep", " # ${LINKS}")
            if self.maybe(0.2):
                line = self.one(" ", "\t", "   ") + line
            if self.maybe(0.12) and " " in line.strip():
                at = line.rindex(" ")  # Continued where uv cannot: it is told so on one line.
                if "#" not in line:
                    return [(f"{line[:at]} \\\n{line[at:]}", line)]
            return [(line, line)]
        if kind < 0.5 and not constraint:
            return [(self.hashes(),) * 2]
        if kind < 0.6:
            return [(self.one("", "# alone", "  # indented", "\t", "#-i nowhere"),) * 2]
        if kind < 0.8 and depth:
            return [self.include(name, folder, depth, constraint=constraint)]
        if constraint:
            return []
        return self.option(folder)

    def include(self, name: str, folder: str, depth: int, *, constraint: bool) -> tuple[str, str]:
        inner = self.one(
            "a.txt", "b.txt", "sub/c.txt", "sub/d e.txt", "../up.txt", "my links/f.txt"
        )
        path = os.path.normpath(f"project/{folder}/{inner}").replace("\\", "/")
        as_constraint = self.maybe(0.35)
        included = os.path.relpath(path, "project")
        if path not in self.case.files and included != name:
            self.case.files[path] = b""
            self.requirements(included, depth - 1, constraint=constraint or as_constraint)
        flag = (
            self.one("-c ", "--constraint ", "--constraint=")
            if as_constraint
            else self.one("-r ", "--requirement ", "--requirement=", "-r  ")
        )
        written = inner.replace("my links", self.one("my links", "${LINKS}"))
        if " " in inner:
            quote = self.one('"', "'")
            return (f"{flag}{quote}{written}{quote}",) * 2
        line = flag + written + self.one("", " ", " # that one")
        if self.maybe(0.1) and flag in ("-r ", "-c "):
            return (f"{flag.strip()}{written}", f"{flag}{written}")
        return (line, line)

    def option(self, folder: str) -> list[tuple[str, str]]:
        kind = self.random.random()
        if kind < 0.25 and not self.has_index:
            self.has_index = True
            place = self.one("public", "private")
            last = self.one("-i ", "--index-url ", "--index-url=") + self.address(
                place, relative_to="project"
            )
            if self.maybe(0.4):  # The last one counts; uv wants only one.
                first = f"-i {self.address('public')}"
                second = f"-i {self.address('private')}"
                return [(f"{first}\n{second}\n{first}\n{last}", last)]
            return [(last, last)]
        if kind < 0.5:
            flag = self.one("--extra-index-url ", "--extra-index-url=")
            return [
                (flag + self.address(self.one("public", "private"), relative_to="project"),) * 2
            ]
        if kind < 0.75:
            flag = self.one("-f ", "--find-links ", "--find-links=")
            up = "../" * (folder.count("/") + 2 if folder else 1)
            path = self.one(
                '"${WORLD}/my links/files"',
                "'${WORLD}/${LINKS}/files'",
                f'"{self.world.folder}/my links/files"',
                f"{self.world.web}/private/simple/mine/",
                "${WEB}/private/simple/mine/",
                f"'{up}world/my links/files'",
            )
            return [(flag + path,) * 2]
        if kind < 0.8:
            return [("--no-index -f '${WORLD}/my links/files'",) * 2]
        if kind < 0.85:
            self.prerelease = True
            return [("--pre",) * 2]
        if kind < 0.95:
            flag = self.one("--only-binary", "--no-binary", "--only-binary")
            package = self.one("alpha", "beta", ":none:", ":all:" if "only" in flag else "zeta")
            if self.maybe(0.3):
                return [(f"{flag} {package},mine", f"{flag} {package}\n{flag} mine")]
            return [(f"{flag}{self.one(' ', '=')}{package}",) * 2]
        return [(self.one("--prefer-binary", "--trusted-host example.org"),) * 2]

    def pyproject(self, *, as_source: bool) -> None:
        """Add a project with dependencies, as the source or for a line `-e .`."""
        name = "project/pyproject.toml"
        sources, indexes = "", ""
        if self.maybe(0.5):
            entry = self.one(
                '{index = "own"}',
                f'{{url = "{self.world.web}/private/files/mine-1.0-py3-none-any.whl"}}',
                '[{index = "own", marker = "sys_platform == \'win32\'"}]',
                '[{index = "own", marker = "python_version > \'3\'"}, '
                f'{{url = "{self.world.web}/x.whl", marker = "python_version < \'3\'"}}]',
            )
            sources = f"[tool.uv.sources]\nmine = {entry}\n"
            indexes = (
                "[[tool.uv.index]]\n"
                f'name = "own"\nurl = "{self.address("private")}"\nexplicit = true\n'
            )
        texts = [self.requirement() for _ in range(self.random.randint(1, 3))]
        part = [self.requirement(), self.requirement()]
        if self.maybe(0.5):
            texts.append(f"the.Part{self.one('', '[all]')}{self.one('', self.marker())}")
            is_member = self.maybe(0.5)
            entry = "workspace = true" if is_member else 'path = "part", editable = true'
            sources = (sources or "[tool.uv.sources]\n") + f"the-part = {{{entry}}}\n"
            indexes += '[tool.uv.workspace]\nmembers = ["p*"]\n' * is_member
        extras = [self.requirement(), f"The.Project[more]{self.marker()}", self.requirement()]
        more = [self.requirement(), "the-project[all] ; python_version > '3'"]
        text = (
            '[project]\nname = "the_project"\nversion = "1"\n'
            # Lists of JSON are lists of TOML.
            f"dependencies = {json.dumps([*texts, 'mine'])}\n[project.optional-dependencies]\n"
            f"all = {json.dumps(extras)}\nmore = {json.dumps(more)}\n"
        )
        self.case.files[name] = text + sources + indexes
        self.case.files["project/part/pyproject.toml"] = (
            '[project]\nname = "the_part"\nversion = "1"\n'
            f"dependencies = {json.dumps(part[:1])}\n[project.optional-dependencies]\n"
            f"all = {json.dumps(part[1:])}\nmore = []\n"
        )
        if as_source:
            self.case.source = "pyproject.toml"
            return
        self.project = True


def differing(world: World, seed: int) -> str | None:
    """Return what to say about a case that differs."""
    case = Generator(world, seed).make()
    answers = []
    with tempfile.TemporaryDirectory(dir=world.folder) as scratch:
        for name, resolve in (("theirs", by_uv), ("ours", by_us)):
            folder = Path(scratch, name)
            folder.mkdir()
            (folder / "world").symlink_to(world.folder)
            environ = {key: one.format(folder=folder) for key, one in case.environ.items()}
            given = Case(**{**vars(case), "environ": environ})
            answers.append(resolve(world, given, folder))
    theirs, ours = answers
    same = theirs == ours if isinstance(theirs, list) else isinstance(ours, str)
    if same:
        return None
    files = "\n".join(f"--- {name}\n{content!r}" for name, content in case.files.items())
    plain = "\n".join(f"--- {name} (for uv)\n{content!r}" for name, content in case.plain.items())
    return (
        f"seed {seed}: {case.environ} {case.arguments} minor={case.minor}\n{files}\n{plain}\n"
        f"uv: {theirs}\nwe: {ours}"
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_generated_files_resolve_as_they_do_for_uv_itself(world: World) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = [one for one in pool.map(partial(differing, world), range(IN_CI)) if one]
    assert not found, "\n\n".join(found)


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


@pytest.mark.parametrize(
    "files",
    [
        {"requirements.txt": "mine\n-f wheels\n--no-index"},
        {"requirements.txt": "mine\n", "uv.toml": "find-links = ['wheels']\nno-index = true"},
        {"requirements.txt": "mine", "uv.toml": "[[index]]\nurl = 'wheels'\nformat = 'flat'"},
    ],
)
@pytest.mark.parametrize("name", ["a #b", "${HOME}", "100%20"])
def test_relative_folders_hold_with_any_name_of_the_project(
    world: World, tmp_path: Path, name: str, files: dict[str, str]
) -> None:
    texts = {f"project/{file}": text for file, text in files.items()}
    written(tmp_path / name, texts)
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


def main(count: int, first: int = 0) -> int:
    """Compare *count* cases from the seed *first* on, and print those that differ."""
    differences = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        running_world(Path(folder)) as world,
        ThreadPoolExecutor(3) as pool,
    ):
        for one in pool.map(partial(differing, world), range(first, first + count)):
            if one:
                differences += 1
                print(one, end="\n\n", flush=True)
    print(f"{differences} of {count} differ")
    return min(differences, 1)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
