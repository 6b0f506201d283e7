from __future__ import annotations

import csv
import io
import os
import py_compile
import string
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Mapping
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wheel_maker import extracted, make_wheel

from kinetic_images.builders.layers.conversion import compiled, portable, scripts_of, write_layer
from kinetic_images.errors import InvalidWheelError
from kinetic_images.uv import find_uv

ENTRY_POINTS = (
    "[console_scripts]\ndemo = demo:main\n\n[gui_scripts]\ndemo-GUI = demo.gui:App.run [x]\n"
)
EVERYTHING = {
    "demo/__init__.py": "def main():\n    print('hello')\n    return 3\n",
    "demo/templates/page.py": "{{ this is no Python }}\n",
    'demo/naïve, "quoted".txt': "text",
    "demo/tool.sh": "#!/bin/sh\n",
    "{data}/scripts/old": "#!python\nimport demo\ndemo.main()\n",
    "{data}/scripts/native": b"\x7fELF" + bytes(range(256)) * 50,
    "{data}/data/share/demo/info.txt": "shared",
    "{data}/headers/demo.h": "#define DEMO\n",
    "{data}/platlib/demo_native.py": "X = 1\n",
    "{info}/licenses/LICENSE": "free",
}
MODES = {"tool.sh": 0o100755}


def layer_of(*wheels: Path, bytecode: bool = False) -> bytes:
    stream = io.BytesIO()
    write_layer(wheels, stream, bytecode=bytecode)
    return stream.getvalue()


def rows(record: Path) -> dict[str, tuple[str, str]]:
    with record.open(newline="") as stream:
        return {path: (digest, size) for path, digest, size in csv.reader(stream)}


def installed_by_uv(wheel: Path, folder: Path) -> Path:
    python = ["--python", sys.executable, "--no-deps", "--offline", "--link-mode", "copy"]
    find_uv().run("pip", "install", *python, "--target", str(folder), str(wheel))
    return folder


def tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return the files of an installation, without those that each installer writes differently."""
    own = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock"}
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file() and path.name not in own and path.relative_to(folder).parts[0] != "bin"
    }


def assert_like_uv(wheel: Path, folder: Path) -> None:
    extracted(layer_of(wheel), folder / "image")
    site = folder / "image/opt/kn/site"
    expected = installed_by_uv(wheel, folder / "uv")

    assert tree(site) == {
        path: found
        for path, found in tree(expected).items()
        if not path.startswith(("share/", "include/"))
    }
    info = next(site.glob("*.dist-info")).name
    own = {f"{info}/{name}" for name in ("INSTALLER", "REQUESTED", "direct_url.json")}
    scripts = "../bin/"
    ours, theirs = rows(site / info / "RECORD"), rows(expected / info / "RECORD")
    outside = ("../share/", "share/", "../include/", "include/", "bin/", scripts)
    assert {
        path: row for path, row in ours.items() if path not in own and not path.startswith(outside)
    } == {
        path: row
        for path, row in theirs.items()
        if path not in own and not path.startswith(outside) and "uv_cache" not in path
    }
    programs = {path.name for path in (folder / "image/opt/kn/bin").glob("*")}
    assert programs == {path.name for path in (expected / "bin").glob("*")}
    assert {path for path in ours if path.startswith(scripts)} == {
        f"{scripts}{name}" for name in programs
    }


names = st.text(string.ascii_letters + string.digits + " _-,'\"#é", min_size=1, max_size=8).filter(
    lambda name: name == name.strip()
)
contents = st.dictionaries(
    st.tuples(
        st.sampled_from(["", "a/", "a/b/", "{data}/purelib/p/", "{data}/scripts/", "{info}/x/"]),
        names,
        st.sampled_from(["", ".py", ".txt", ".so"]),
    ).map(lambda parts: "".join(("" if parts[0].startswith("{") else "top/", *parts))),
    st.binary(max_size=300)
    | st.sampled_from([b"#!python\nx = 1\n", b"#!pythonw -E\r\ny\n", b"x = 1\n"]),
    min_size=1,
    max_size=8,
)


@settings(max_examples=10, deadline=None)
@given(files=contents, modes=st.sampled_from([{}, {"top/": 0o100755}]), entry_points=st.just(""))
@example(files=EVERYTHING, modes=MODES, entry_points=ENTRY_POINTS)
def test_any_wheel_is_installed_as_uv_installs_it(
    files: Mapping[str, bytes | str],
    modes: Mapping[str, int],
    entry_points: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("wheel")

    assert_like_uv(make_wheel(folder, files, modes=modes, entry_points=entry_points), folder)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_several_files_for_one_path_the_image_has_the_one_that_installers_keep(
    tmp_path: Path,
) -> None:
    files = {"{data}/purelib/twice/b.py": "data", "twice/a.py": "first", "twice/b.py": "root"}
    wheel = make_wheel(tmp_path, files, name="twice")
    uv = tree(installed_by_uv(wheel, tmp_path / "uv"))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("twice/a.py", "last")  # As pip and unzip; uv extracts in any order.

    members = extracted(layer_of(wheel), tmp_path / "image")

    assert len(members) == len(set(members))
    last = {"twice/a.py": (b"last", False)}
    assert tree(tmp_path / "image/opt/kn/site") == {**uv, **last}


@pytest.mark.parametrize("name", ["python", "python3.11"])
def test_a_program_in_place_of_the_interpreter_is_refused(tmp_path: Path, name: str) -> None:
    script = make_wheel(tmp_path / "a", {f"{{data}}/scripts/{name}": "#!python\n"})
    entry = make_wheel(tmp_path / "b", entry_points=f"[console_scripts]\n{name} = demo:main\n")

    for wheel in (script, entry):
        with pytest.raises(InvalidWheelError, match="the name of the interpreter"):
            layer_of(wheel)


def test_files_belong_to_root_without_a_time_and_only_our_folders_are_listed(
    tmp_path: Path,
) -> None:
    wheel = make_wheel(tmp_path, EVERYTHING, entry_points=ENTRY_POINTS, modes=MODES)

    members = extracted(layer_of(wheel, bytecode=True), tmp_path / "image")

    assert {(each.uid, each.gid, each.mtime) for each in members.values()} == {(0, 0, 0)}
    assert {each.mode for each in members.values() if each.isdir()} == {0o755}
    executable = {path for path, each in members.items() if each.mode == 0o755 and each.isfile()}
    assert executable == {
        "opt/kn/site/demo/tool.sh",
        *(f"opt/kn/bin/{name}" for name in ("demo", "demo-GUI", "old", "native")),
    }
    assert {each.mode for each in members.values()} == {0o755, 0o644}
    folders = [path for path, each in members.items() if each.isdir()]
    assert folders[0] == "opt/kn"
    assert all(path.startswith("opt/kn") for path in members)


def test_programs_run_with_the_python_of_the_path(tmp_path: Path) -> None:
    extracted(
        layer_of(make_wheel(tmp_path, EVERYTHING, entry_points=ENTRY_POINTS)), tmp_path / "image"
    )
    kn = tmp_path / "image/opt/kn"
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"

    for program in ("demo", "old"):
        done = subprocess.run(
            [kn / "bin" / program],
            env={"PATH": path, "PYTHONPATH": str(kn / "site")},
            capture_output=True,
            check=False,
        )

        assert done.stdout == b"hello\n", done.stderr
        assert done.returncode == (3 if program == "demo" else 0)


def test_metadata_names_every_file_and_only_files_that_exist(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, EVERYTHING, entry_points=ENTRY_POINTS)
    extracted(layer_of(wheel, bytecode=True), tmp_path / "image")
    kn = tmp_path / "image/opt/kn"
    found = PathDistribution(kn / "site/demo-1.0.dist-info")

    listed = {Path(os.path.normpath(file.locate())) for file in found.files or []}  # type: ignore[arg-type]

    assert listed == {path for path in kn.rglob("*") if path.is_file()}
    assert {point.name for point in found.entry_points} == {"demo", "demo-GUI"}
    assert (kn / "site/demo-1.0.dist-info/INSTALLER").read_text() == "kinetic\n"


def test_bytecode_is_that_of_py_compile_for_the_path_in_the_image_and_replaces_that_of_a_wheel(
    tmp_path: Path,
) -> None:
    cached = f"demo/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    files = {"demo/__init__.py": "def f(x):\n    return x + 1\n", cached: b"of the wheel"}
    members = extracted(layer_of(make_wheel(tmp_path, files), bytecode=True), tmp_path / "image")
    source = tmp_path / "image/opt/kn/site/demo/__init__.py"

    expected = py_compile.compile(
        str(source),
        cfile=str(tmp_path / "expected.pyc"),
        dfile="/opt/kn/site/demo/__init__.py",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        doraise=True,
    )

    assert (tmp_path / "image/opt/kn/site" / cached).read_bytes() == Path(
        expected or ""
    ).read_bytes()
    assert rows(tmp_path / "image/opt/kn/site/demo-1.0.dist-info/RECORD")[cached] == ("", "")
    assert len(members) == len(set(members))


def test_a_module_that_does_not_compile_or_has_a_long_name_has_no_bytecode(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {**EVERYTHING, f"demo/{'x' * 250}.py": ""})
    extracted(layer_of(wheel, bytecode=True), tmp_path / "image")

    made = {path.name.partition(".")[0] for path in (tmp_path / "image").rglob("*.pyc")}

    assert made == {"__init__", "demo_native"}


@pytest.mark.parametrize(
    "source",
    [
        b"x = 1\0\n",
        b"# coding: nonsense\n",
        b"\xff\xfe",
        b"(" * 5000,
        b"x = " + b"-" * 200_000 + b"1\n",
        b"lambda: " * 1001 + b"0",
    ],
    ids=["nul", "coding", "bytes", "parentheses", "deep", "nested"],
)
def test_a_source_that_does_not_compile_has_none(source: bytes) -> None:
    assert compiled(source, "/x.py") is None


def test_docstrings_and_assertions_stay_with_any_options_of_this_process() -> None:
    assert b"Doc." in (compiled(b'"""Doc."""\nassert x\n', "/x.py") or b"")


def test_the_last_of_two_wheels_with_one_path_is_installed(tmp_path: Path) -> None:
    first = make_wheel(tmp_path, {"shared/x.py": "A = 1\n", "a.py": ""}, name="first")
    second = make_wheel(tmp_path, {"shared/x.py": "A = 2\n"}, name="second")

    members = extracted(layer_of(first, second, bytecode=True), tmp_path / "image")

    assert (tmp_path / "image/opt/kn/site/shared/x.py").read_text() == "A = 2\n"
    assert "opt/kn/site/a.py" in members


def test_a_file_of_one_wheel_where_another_has_a_folder_is_refused(tmp_path: Path) -> None:
    first = make_wheel(tmp_path, {"shared": "file"}, name="first")
    second = make_wheel(tmp_path, {"shared/x.py": ""}, name="second")

    with pytest.raises(InvalidWheelError, match=r"second-1\.0.*'opt/kn/site/shared'.*first-1\.0"):
        layer_of(first, second)


def test_memory_does_not_depend_on_the_size_of_a_file(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/large.bin": bytes(32 << 20)})
    tracemalloc.start()
    try:
        layer_of(wheel)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 12 << 20


def test_an_entry_point_that_names_no_function_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo.py": ""}, entry_points="[console_scripts]\nx = demo\n")

    with pytest.raises(InvalidWheelError, match=r"demo-1\.0-py3-none-any\.whl.*entry"):
        layer_of(wheel)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"#!python\nx\n", b"#!/usr/bin/env python3\nx\n"),
        (b"#!pythonw -E\r\nx\n", b"#!/usr/bin/env python3\nx\n"),
        (b"#!python", b"#!/usr/bin/env python3"),
        (b"#!/bin/sh\nx\n", b"#!/bin/sh\nx\n"),
        (b"\x7fELF\0\n", b"\x7fELF\0\n"),
        (b"#!python" + b"x" * 9000, b"#!python" + b"x" * 9000),
        (b"", b""),
    ],
)
def test_only_the_mark_of_wheels_is_replaced(before: bytes, after: bytes) -> None:
    assert portable(before) == after


@pytest.mark.parametrize(
    "value", ["m", "m:", ":f", "m:f()", "m:f; import os", "m:f\n  import os", "a b:f", "m:1x", ""]
)
def test_an_entry_point_without_a_function_is_an_error(value: str) -> None:
    with pytest.raises(ValueError, match="'x'"):
        scripts_of(f"[console_scripts]\nx = {value}\n")


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", ".wh.x", "é" * 128])
def test_an_invalid_name_of_a_program_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        scripts_of(f"[console_scripts]\n{name} = m:f\n")
