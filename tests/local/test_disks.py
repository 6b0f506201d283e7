"""Disks that are full at a submit or fill up under a job: reported with advice, and no value is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def on_a_small_disk(
    project, where: Path, *args: str, script: str, size: str = "5m", image: Path | None = None
) -> str:
    """Run *script* where a small disk lies at *where*, and return what it printed."""
    where.mkdir(exist_ok=True)
    (project.home / "cache").rename(project.home.with_name("cache"))
    # A home with its cache saves time, where that fits.
    fill = f'cp -rp {project.home.with_name("cache")} "$KINETIC_HOME"' if size == "5m" else "true"
    disk = f"-o loop {image}" if image else f"-t tmpfs -o size={size},mode=700 none"
    mount = f'mount {disk} "$0" && {fill} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, str(where)]
    if not shutil.which("unshare") or project.execute(*command, "true").returncode:
        pytest.skip("no private mounts here")
    store = {"KINETIC_STORE": str(where)} if where != project.home else {}
    done = project.execute(*command, sys.executable, script, *args, **store, FULL=str(where))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("size", ["100k", "600k"])
def test_a_submit_to_a_full_disk_fails_and_leaves_nothing(project, size: str) -> None:
    project.write(
        "main.py",
        """
        import os
        import kinetic
        from kinetic.jobs.discover import list_jobs

        @kinetic.run(accelerator="cpu")
        def work():
            return os.urandom(4_000_000)

        if __name__ == "__main__":
            try:
                work.run_async().result()
            except kinetic.KineticError as error:
                print(type(error).__name__, error)
            print("left", len(list_jobs()))
    """,
    )
    shown = on_a_small_disk(project, project.home, script="main.py", size=size)

    assert "KINETIC_HOME" in shown, shown
    assert shown.endswith("left 0\n")


@pytest.mark.parametrize(
    ("disk", "how"), [("home", "kill"), ("home", "raise"), ("store", "return")]
)
def test_a_disk_that_fills_up_under_a_job_is_reported_first_and_no_end_is_lost(
    project, disk: str, how: str
) -> None:
    where = project.home if disk == "home" else project.root.parent / "store"

    project.copy("full_disk.py")

    shown = on_a_small_disk(project, where, how, script="full_disk.py")

    first = f"The disk of {where} is full: 0 MiB of 5 MiB are free. Make room there"
    assert f"status: {first}" in shown
    assert first in shown.partition("result:")[2]
    assert "supervisor died" not in shown
    assert {
        "return": "whole True 200000",
        "raise": "No space left on device",
        "kill": "SIGKILL",
    }[how] in shown.splitlines()[-1 if how == "return" else -2] + shown.splitlines()[-1]


def test_a_value_that_is_too_large_for_the_disk_waits_for_room(project) -> None:
    project.copy("full_disk.py")

    shown = on_a_small_disk(project, project.home, "value", script="full_disk.py")

    assert "no space is left on the disk" in shown.partition("result:")[0]
    assert "whole True 4000000" in shown


@pytest.mark.skipif(not shutil.which("mkfs.btrfs"), reason="no tools for Btrfs")
def test_data_takes_no_room_where_files_share_blocks_and_stays_apart(project, tmp_path) -> None:
    image = tmp_path / "disk"
    image.touch()
    os.truncate(image, 160_000_000)  # Too small for three times the data.
    subprocess.run(["mkfs.btrfs", "-q", "-m", "single", image], check=True)
    project.write(
        "main.py",
        """
        import os
        from pathlib import Path
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work(path):
            with open(path, "r+b") as stream:
                stream.write(b"job")
            return Path(path).stat().st_size

        if __name__ == "__main__":
            mine = Path(os.environ["FULL"], "mine.bin")
            mine.write_bytes(b"mine" + os.urandom(60_000_000))
            job = work.run_async(kinetic.Data(mine))
            print(job.result(cleanup=False), mine.read_bytes()[:4])
            print(work(kinetic.Data(mine)))
    """,
    )

    shown = on_a_small_disk(project, project.home, script="main.py", image=image)

    assert shown.splitlines() == ["60000004 b'mine'", "60000004"]
