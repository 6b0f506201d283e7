"""What was not used for long is removed from the caches, and nothing that a process uses."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from time import time

from file_server import FileServer
from locked_project import Project, package

from kinetic_images.caches import collect, collect_daily
from kinetic_images.downloads import Downloader
from kinetic_images.kept_records import find_record, keep_record
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.wheel_files import WheelFiles

DAY = 86_400.0
NOW = time()


def a_package(index: FileServer) -> LockedPackage:
    digest = hashlib.sha256(b"wheel").hexdigest()
    return package("p", "1", sha256=digest, address=index.add("/p.whl", b"wheel"))


def files_in(home: Path) -> WheelFiles:
    return WheelFiles(home / "cache" / "downloads", Downloader(environ={}))


def age(path: Path, days: float) -> None:
    os.utime(path, (NOW, NOW - days * DAY))


def a_wheel(home: Path, digit: str, days: float, size: int = 10) -> Path:
    path = home / "cache" / "downloads" / (digit * 64) / "p-1-py3-none-any.whl"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(size))
    age(path, days)
    return path


def test_wheels_that_were_not_used_for_a_month_are_removed(tmp_path: Path) -> None:
    old, used = a_wheel(tmp_path, "a", 31), a_wheel(tmp_path, "b", 29)
    collect(tmp_path, NOW)
    assert not old.parent.exists()
    assert used.exists()


def test_beyond_the_limit_the_least_recently_used_wheels_go_but_none_of_the_last_day(
    tmp_path: Path,
) -> None:
    wheels = {days: a_wheel(tmp_path, digit, days) for digit, days in zip("abcd", (0.1, 0.9, 2, 3))}
    collect(tmp_path, NOW, downloads_size=30)
    assert [days for days, path in wheels.items() if path.exists()] == [0.1, 0.9, 2]
    collect(tmp_path, NOW, downloads_size=5)
    assert [days for days, path in wheels.items() if path.exists()] == [0.1, 0.9]


def test_each_kind_of_use_keeps_a_file(index: FileServer, project: Project) -> None:
    home, package = project.home, a_package(index)
    wheels = files_in(home)
    layer = home / "cache" / "layers" / "records" / "x.json"
    image = home / "cache" / "images" / "x.json"
    project.wheel("alpha")
    project.require("alpha")

    def use() -> None:
        wheels.get(package)
        find_record(layer)
        find_record(image)
        project.lock()

    keep_record(image, {})
    keep_record(layer, {})
    use()
    kept = [path for path in (home / "cache").rglob("*") if path.suffix in (".whl", ".json")]
    assert len(kept) == 4
    for path in kept:
        age(path, 1000)
    use()
    collect(home, NOW)
    assert [path for path in kept if not path.exists()] == []
    for path in kept:
        age(path, 1000)
    collect(home, NOW)
    assert [path for path in kept if path.exists()] == []
    use()


def test_choices_are_kept_for_half_a_year_and_remains_of_killed_processes_for_a_day(
    tmp_path: Path,
) -> None:
    ages = {
        "locks/a.json": 179, "locks/b.json": 181, "locks/a.json.lock": 400, "locks/b.json.lock": 400,
        "locks/.c-scratch/netrc": 2, "images/a.json": 179, "images/b.json": 181,
        "images/last/b.json": 181, "images/checked/b": 181, "layers/records/b.json": 31,
        "layers/partial/b": 0, "downloads/partial/b": 2, "wheels/x/y.whl": 400, "trees/x": 400,
    }  # fmt: skip
    cache = tmp_path / "cache"
    for name, days in ages.items():
        path = cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        age(path, days)
    age(cache / "locks" / ".c-scratch", 2)
    found = sorted(cache.rglob("*"))
    collect(tmp_path, NOW, age=0.0, spare=lambda _: True)
    assert sorted(cache.rglob("*")) == [*found, *cache.glob("downloads/.lock")]
    collect(tmp_path, NOW)
    left = {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}
    assert left - {"downloads/.lock"} == {
        "locks/a.json", "locks/a.json.lock", "images/a.json", "wheels/x/y.whl", "trees/x",
    }  # fmt: skip
    assert not (cache / "locks" / ".c-scratch").exists()


def test_it_happens_once_a_day_and_not_in_a_new_home(tmp_path: Path) -> None:
    collect_daily(tmp_path)
    mark = tmp_path / "cache" / ".collected"
    old = a_wheel(tmp_path, "a", 31)
    collect_daily(tmp_path)
    assert old.exists()
    age(mark, 1.1)
    collect_daily(tmp_path)
    assert not old.exists()
    assert time() - mark.stat().st_mtime < DAY


COLLECT = """
import sys
from pathlib import Path
from time import time
from kinetic_images.caches import collect
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    collect(Path(sys.argv[1]), time(), downloads_size=0)
"""


def test_a_wheel_that_was_handed_out_is_not_removed_before_it_is_read(
    tmp_path: Path, index: FileServer
) -> None:
    package = a_package(index)
    wheels = files_in(tmp_path)
    stop = tmp_path / "stop"
    command = [sys.executable, "-c", COLLECT, str(tmp_path), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while index.count("/p.whl") < 5:  # It was removed and downloaded again four times.
                assert process.poll() is None
                path = wheels.get(package)
                assert path.read_bytes() == b"wheel"
                age(path, 1000)
        finally:
            stop.touch()
    assert process.returncode == 0
