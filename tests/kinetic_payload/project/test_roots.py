from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.project.roots import Entry, Kind, ProjectPlan, entry_of, plan_project


def plant(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.touch()


def plan(
    entry: Entry,
    *sys_path: Path | str,
    cwd: Path | None = None,
    home: Path = Path("/home/somebody"),
    override: str | None = None,
) -> ProjectPlan:
    return plan_project(
        entry,
        sys_path=[str(path) for path in sys_path],
        cwd=cwd or Path("/"),
        home=home,
        override=override,
    )


def entry(file: Path | str, module: str, main: str = "", kind: Kind = "script") -> Entry:
    return Entry(Path(file), module, kind, Path(main) if main else None)


def script(path: Path | str) -> Entry:
    return Entry(Path(path), None, "script", Path(path))


PACKAGE, MODULE = "p/pkg/__init__.py ", "p/pkg/sub/__init__.py p/pkg/sub/mod.py"
MARKERS = ("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", ".git/")
# Files, the entry, the working directory; and the plan's paths, working directory and main.
PLANS: dict[str, tuple[str, Entry, str, tuple[tuple[str, ...], str, str | None]]] = {
    "a script without a marker": ("p/a.py", script("p/a.py"), "p", (("",), "", "a.py")),
    "a script in a package": (
        PACKAGE + "p/pkg/a.py", script("p/pkg/a.py"), "p/pkg", (("pkg",), "pkg", "pkg/a.py"),
    ),
    "a working directory outside": ("p/a.py q/", script("p/a.py"), "q", (("",), "", "a.py")),
    "a module in packages": (
        PACKAGE + MODULE, entry("p/pkg/sub/mod.py", "pkg.sub.mod"), "p", (("",), "", None),
    ),
    "a module in namespace packages": (
        "p/company/team/mod.py", entry("p/company/team/mod.py", "company.team.mod"), "p", (("",), "", None),
    ),
    "a package itself": (PACKAGE, entry("p/pkg/__init__.py", "pkg"), "p", (("",), "", None)),
    "python -m": (
        PACKAGE + "p/pkg/__main__.py", entry("p/pkg/__main__.py", "pkg.__main__", "p/pkg/__main__.py", "module"),
        "p", (("",), "", "pkg/__main__.py"),
    ),
    "a file under another name": ("p/impl.py", entry("p/impl.py", "something.other"), "p", (("",), "", None)),
    "a src layout that an import hook finds": (
        "p/setup.py p/src/pkg/__init__.py p/src/pkg/mod.py p/run.py",
        entry("p/src/pkg/mod.py", "pkg.mod", "p/run.py"), "p", (("", "src"), "", "run.py"),
    ),
    "a console script of an environment": (
        "p/.git/ p/mod.py p/.venv/pyvenv.cfg p/.venv/bin/pytest",
        entry("p/mod.py", "mod", "p/.venv/bin/pytest"), "p", (("",), "", None),
    ),
    **{
        f"the nearest marker, {marker}": (
            f"pyproject.toml p/{marker} p/deep/er/a.py",
            script("p/deep/er/a.py"), "p/deep", (("deep/er", "deep"), "deep", "deep/er/a.py"),
        )
        for marker in MARKERS
    },
}  # fmt: skip


@pytest.mark.parametrize(("planted", "entry", "cwd", "expected"), PLANS.values(), ids=PLANS)
def test_the_plan_of_a_project(
    tmp_path: Path, planted: str, entry: Entry, cwd: str, expected: tuple[object, ...]
) -> None:
    plant(tmp_path, *planted.split())
    file, main = (path and tmp_path / path for path in (entry.file, entry.main))

    found = plan(replace(entry, file=file, main=main), "", cwd=tmp_path / cwd)

    assert (found.root, found.kind) == (tmp_path / "p", entry.kind)
    assert (found.paths, found.cwd, found.main) == expected


def test_home_and_folders_above_it_are_projects_only_by_override(tmp_path: Path) -> None:
    home = tmp_path / "home" / "me"
    plant(home, ".git/", "requirements.txt", "work/exp/train.py", "loose.py")
    plant(tmp_path, "home/setup.py")

    assert plan(script(home / "work/exp/train.py"), home=home).root == home / "work/exp"
    with pytest.raises(InvalidRequestError, match="KINETIC_PACKAGE_ROOT"):
        plan(script(home / "loose.py"), home=home)
    assert plan(script(home / "loose.py"), home=home, override="~").root == home


def test_places_are_recognised_under_any_name(
    tmp_path: Path, with_another_path: Callable[[Path, str], str]
) -> None:
    home = tmp_path / "me"
    plant(home, "loose.py", "p/pyproject.toml", "p/cafe\u0301/a.py", "p/caf\u00e9/")

    printed = with_another_path(
        home,
        """
        from kinetic_payload.errors import InvalidRequestError
        from kinetic_payload.project.roots import Entry, plan_project
        def plan(root, file, cwd):
            entry = Entry(root / file, None, "script", root / file)
            return plan_project(entry, sys_path=[], cwd=root / cwd, home=folder, override=None)
        try:
            print(plan(other, "loose.py", "."))
        except InvalidRequestError:
            print("home is home")
        subprocess.run(["mount", "--bind", folder / "p/cafe\u0301", folder / "p/caf\u00e9"])
        found = plan(folder, "p/cafe\u0301/a.py", "p/cafe\u0301")
        print(ascii((found.paths, found.cwd, found.main)))
        """,
    )

    assert printed.splitlines() == ["home is home", r"(('caf\xe9',), 'caf\xe9', 'caf\xe9/a.py')"]


def test_a_script_is_named_only_for_the_functions_that_it_defines(tmp_path: Path) -> None:
    main = tmp_path / "p/a.py"

    assert plan(script(main)).script == main
    assert plan(entry(tmp_path / "p/b.py", "b", str(main))).script is None
    assert plan(entry(main, "a", str(main), "module")).script is None


@pytest.mark.parametrize("where", ["/", "home/me", "home"])
def test_code_typed_in_the_home_directory_or_above_has_no_project(
    tmp_path: Path, where: str
) -> None:
    home = tmp_path / "home" / "me"
    plant(home, "requirements.txt", "near.py")
    entry = Entry(None, None, "notebook")

    found = plan(entry, "", cwd=tmp_path / where, home=home)

    assert found == ProjectPlan(None, (), "", None, "notebook")
    assert plan(entry, cwd=tmp_path / where, home=home, override=str(home)).root == home


def test_without_a_file_the_working_directory_decides(tmp_path: Path) -> None:
    plant(tmp_path, "p/pyproject.toml", "p/notebooks/", "q/")
    entry, kind = Entry(None, None, "notebook"), "notebook"

    marked = plan(entry, "", cwd=tmp_path / "p/notebooks")
    bare = plan(entry, "", cwd=tmp_path / "q")

    assert marked == ProjectPlan(tmp_path / "p", ("notebooks",), "notebooks", None, kind)
    assert bare == ProjectPlan(tmp_path / "q", ("",), "", None, kind)


def test_the_override_replaces_the_found_root(tmp_path: Path) -> None:
    plant(tmp_path, "mono/libs/x.py", "mono/p/pyproject.toml", "mono/p/train.py")
    entry, mono = script(tmp_path / "mono/p/train.py"), tmp_path / "mono"

    found = plan(entry, mono / "p", mono / "libs", override=str(mono))

    assert (found.root, found.paths, found.main) == (mono, ("p", "libs"), "p/train.py")
    assert plan(entry, cwd=mono / "p", override="..").root == mono


@pytest.mark.parametrize(
    ("override", "message"), [("missing", "not a folder"), ("other", "train.py")]
)
def test_an_override_that_does_not_fit_is_refused(
    tmp_path: Path, override: str, message: str
) -> None:
    plant(tmp_path, "p/train.py", "other/")

    with pytest.raises(InvalidRequestError, match=message):
        plan(script(tmp_path / "p/train.py"), override=str(tmp_path / override))


def test_path_entries_inside_the_root_travel_in_order_and_others_do_not(tmp_path: Path) -> None:
    plant(tmp_path, "p/pyproject.toml", "p/train.py", "p/src/pkg/__init__.py", "p/vendor/")
    plant(tmp_path, "p/.venv/pyvenv.cfg", "p/.venv/lib/python3.11/site-packages/", "elsewhere/")
    plant(tmp_path, "p/env/pyvenv.cfg", "p/env/lib/", "p/conda/conda-meta/", "p/conda/lib/")
    plant(tmp_path, "p/site-packages/")
    entries = "p/src elsewhere p p/vendor p/src p/.venv/lib/python3.11/site-packages p/env/lib p/conda/lib"
    on_path = [tmp_path / path for path in f"{entries} p/site-packages p/missing.zip".split()]

    found = plan(script(tmp_path / "p/train.py"), *on_path)

    assert found.paths == ("", "src", "vendor")


def test_links_on_the_way_do_not_hide_that_a_path_is_inside(tmp_path: Path) -> None:
    plant(tmp_path, "real/pyproject.toml", "real/src/pkg/mod.py")
    (tmp_path / "alias").symlink_to("real")

    found = plan(
        Entry(tmp_path / "alias/src/pkg/mod.py", "pkg.mod", "script"),
        tmp_path / "real/src",
        cwd=tmp_path / "real/src",
    )

    assert (found.root, found.paths, found.cwd) == (tmp_path / "alias", ("src",), "src")


HERE = Path(__file__)


def function() -> None: ...


class Trainer:
    def fit(self) -> None: ...

    def __call__(self) -> None: ...


@functools.wraps(function)
def wrapper() -> None: ...


@pytest.mark.parametrize(
    "what",
    [
        function,
        functools.partial(function, 1),
        functools.partial(functools.partial(Trainer().fit)),
        Trainer().fit,
        Trainer(),
        Trainer,
        functools.partial(Trainer()),
        wrapper,
        functools.lru_cache(function),
        lambda: None,
    ],
)
def test_wrappers_of_a_function_do_not_hide_its_file(what: object) -> None:
    assert entry_of(what).file == HERE


@pytest.mark.parametrize("what", [len, functools.partial(print), textwrap.dedent, [].append])
def test_a_function_of_the_interpreter_belongs_to_its_callers_project(what: object) -> None:
    entry = entry_of(what)

    assert entry.file == entry.main
    assert entry.file is None or not str(entry.file).startswith(str(Path(textwrap.__file__).parent))


SHOW = """
    from kinetic_payload.project.roots import entry_of
    def f(): ...
    entry = entry_of(f)
    print(entry.kind, entry.module, entry.file and entry.file.name, entry.main and entry.main.name)
"""


def run(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, input=stdin, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def test_each_way_to_start_python_is_recognised(tmp_path: Path) -> None:
    code = textwrap.dedent(SHOW)
    plant(tmp_path, "pkg/__init__.py")
    for name in ("train.py", "pkg/mod.py", "pkg/__main__.py"):
        (tmp_path / name).write_text(code)

    assert run(tmp_path, "train.py") == "script None train.py train.py"
    assert run(tmp_path, "-m", "pkg.mod") == "module pkg.mod mod.py mod.py"
    assert run(tmp_path, "-m", "pkg") == "module pkg.__main__ __main__.py __main__.py"
    assert run(tmp_path, "-c", code) == "interactive None None None"
    assert run(tmp_path, "-", stdin=code) == "interactive None None None"
    assert run(tmp_path, "-c", "import train") == "interactive train train.py None"


@pytest.mark.parametrize("start", [["-m", "tool.prompt"], ["site-packages/tool/prompt.py"]])
def test_code_typed_into_an_installed_program_has_no_file(tmp_path: Path, start) -> None:
    # So does the prompt of Python 3.13, which is a module of the standard library.
    site = tmp_path / "site-packages"
    (site / "tool").mkdir(parents=True)
    (site / "tool" / "prompt.py").write_text("import sys; exec(sys.stdin.read(), globals())")
    (tmp_path / "train.py").write_text(textwrap.dedent(SHOW))
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        typed = run(tmp_path, *start, stdin=textwrap.dedent(SHOW))
        imported = run(tmp_path, *start, stdin=path + "import train")

    assert typed == "interactive None None None"
    assert imported == "interactive train train.py None"


def test_a_process_of_a_pool_knows_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import multiprocessing
        from kinetic_payload.project.roots import entry_of
        def f(): ...
        def show(): print(entry_of(f))
        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=show)
            child.start()
            child.join()
        """)
    )

    path = tmp_path / "train.py"
    assert run(tmp_path, "train.py") == str(Entry(path, None, "script", path))
