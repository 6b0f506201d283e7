"""The folder store with real processes: races, kills and what they leave behind."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import ObjectNotFoundError, StoreError
from kinetic_payload.stores import open_store
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import ABSENT, Location, parse_location

PRELUDE = """
import sys
from pathlib import Path
from kinetic_payload.errors import PreconditionFailedError
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.testing import increment
store = FolderStore(Path(sys.argv[1]))
me = int(sys.argv[2])
"""


def spawn(root: Path, number: int, body: str) -> Any:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(root), str(number)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def outputs(processes: list[Any]) -> list[bytes]:
    results = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return results


def test_of_eight_processes_one_creates_each_object_and_none_loses_an_update(
    tmp_path: Path,
) -> None:
    body = """
    import threading
    def work():
        for _ in range(5):
            increment(store, "counter")
    for turn in range(40):
        try:
            store.write(f"o{turn}", b"%d" % me, if_generation=0)
            print(turn)
        except PreconditionFailedError:
            pass
    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    """
    created = outputs([spawn(tmp_path, n, body) for n in range(8)])
    turns = sorted(int(line) for output in created for line in output.split())
    assert turns == list(range(40))
    store = FolderStore(tmp_path)
    for turn in range(40):
        assert str(turn).encode() in created[int(store.read(f"o{turn}"))].split()
    assert store.read("counter") == b"80"


def test_killed_writers_leave_whole_objects_and_no_litter(tmp_path: Path) -> None:
    body = """
    turn = 0
    while True:
        turn += 1
        byte = bytes([turn % 256])
        store.write(f"o{me}", byte * 300_000)
        with store.writer("shared") as stream:
            for _ in range(30):
                stream.write(byte * 10_000)
        if turn == 1:
            print("going", flush=True)
    """
    for delay in (0.0, 0.003, 0.011, 0.02):
        writers = [spawn(tmp_path, n, body) for n in range(3)]
        for writer in writers:
            writer.stdout.readline()
        threading.Event().wait(delay)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.communicate()
    store = FolderStore(tmp_path)
    for info in store.list():
        data = store.read(info.name)
        assert len(data) == 300_000
        assert len(set(data)) == 1
    increment_after = store.write("shared", b"x")
    assert store.stat("shared") == increment_after
    assert list((tmp_path / ".kinetic-store" / "temporary").iterdir()) == []


def test_a_leftover_is_collected_while_living_writers_keep_theirs(tmp_path: Path) -> None:
    folder = tmp_path / ".kinetic-store" / "temporary"
    ours = FolderStore(tmp_path)
    body = """
    with store.writer("theirs") as stream:
        stream.write(b"half")
        print("open", flush=True)
        sys.stdin.readline()
    """
    other = spawn(tmp_path, 0, body)
    other.stdout.readline()
    with ours.writer("ours") as stream:
        stream.write(b"half")
        (folder / "leftover").write_bytes(b"of a dead writer")
        FolderStore(tmp_path).write("another", b"")
        assert not (folder / "leftover").exists()
        assert len(list(folder.iterdir())) == 2
    other.communicate(b"\n", timeout=60)
    assert other.returncode == 0
    assert ours.read("ours") == ours.read("theirs") == b"half"


def test_several_paths_of_one_store_are_one_store(
    tmp_path: Path, with_another_path: Callable[[Path, str], str]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    code = """
        from kinetic_payload.stores.folder.store import FolderStore
        ours = FolderStore(folder)
        with ours.writer("ours") as stream:
            stream.write(b"half")
            for name in (other, folder.with_name("link")):
                FolderStore(name).write("another", b"")
        print(ours.read("ours"))
    """
    assert with_another_path(tmp_path / "real", code).split() == ["b'half'"]


def test_generations_grow_when_the_clock_goes_backwards(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.write("o", b"")
    ahead = time.time_ns() + 3_600_000_000_000
    os.utime(tmp_path / "o", ns=(ahead, ahead))
    assert store.write("o", b"").generation == ahead + 1
    store.delete("o")
    assert store.write("o", b"", if_generation=ABSENT).generation > ahead + 1


def test_everything_is_readable_by_its_user_only(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    store.write("a/b/c", b"secret")
    store.write("a/b/c", b"secret again")
    source = tmp_path / "open"
    source.write_bytes(b"")
    source.chmod(0o644)
    store.upload("a/up", source)
    store.download("a/up", tmp_path / "down")
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in [tmp_path / "store", tmp_path / "down", *(tmp_path / "store").rglob("*")]
    }
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_files_of_others_are_objects(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    outputs = tmp_path / "outputs" / "job"
    outputs.mkdir(parents=True)
    (outputs / "model 50%.bin").write_bytes(b"weights")
    (outputs / "dangling").symlink_to("nowhere")
    (outputs / "loop").symlink_to(outputs)
    os.mkfifo(outputs / "pipe")
    assert [info.name for info in store.list("outputs/")] == ["outputs/job/model 50%.bin"]
    assert store.read("outputs/job/model 50%.bin") == b"weights"


def test_an_object_that_is_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.write("a", b"")
    with pytest.raises(StoreError, match="'a/b'"):
        store.write("a/b", b"")
    store.write("c/d", b"")
    with pytest.raises(StoreError, match="'c'"):
        store.write("c", b"")
    assert [info.name for info in store.list()] == ["a", "c/d"]
    store.delete("c/d")
    store.write("c", b"")  # Its folder is gone as well.


def test_a_deleted_store_is_made_again_by_the_next_write_but_not_during_one(tmp_path: Path) -> None:
    class Deleting(FolderStore):
        @contextmanager
        def _locked(self, name: str) -> Iterator[int]:
            with super()._locked(name) as shard:
                shutil.rmtree(tmp_path / "ä b")
                yield shard

    store = FolderStore(tmp_path / "ä b")
    store.write("o", b"1")
    with pytest.raises(StoreError, match="Could not write 'a/o'"):
        Deleting(tmp_path / "ä b").write("a/o", b"")
    assert store.stat("o") is None
    assert not store.delete("o")
    store.write("o", b"2")
    again = open_store(parse_location(str(store.location)))
    assert again.read("o") == b"2"
    assert again.location == store.location


def test_a_failed_download_keeps_the_earlier_file(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    with pytest.raises(ObjectNotFoundError):
        FolderStore(tmp_path / "store").download("o", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


_LIMITED = """
import resource, signal, sys
from pathlib import Path
from kinetic_payload.errors import StoreError
from kinetic_payload.stores.folder.store import FolderStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
store = FolderStore(Path(sys.argv[1]))

def stream(data):
    with store.writer("a/b") as stream:
        stream.write(data)

for call in sys.argv[3:]:
    try:
        eval(call)
    except StoreError as error:
        print(error)
"""


def limited(store: Path, limit: int, *calls: str) -> str:
    """Return what *calls* print where a limit on the size of files cuts writes short, as a full disk does."""
    command = [sys.executable, "-c", _LIMITED, str(store), str(limit), *calls]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize("limit", [500_000, 1_500_000, 1_700_000])
def test_a_download_that_does_not_fit_is_an_error_that_names_the_place(
    tmp_path: Path, limit: int
) -> None:
    store, target = tmp_path / "store", tmp_path / "out" / "target"
    FolderStore(store).write("o", os.urandom(1_800_000))
    target.parent.mkdir()

    printed = limited(store, limit, f"store.download('o', Path({str(target)!r}))")

    assert f"'o' to {target}" in printed
    assert "Make room on that disk" in printed
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("size", [100_001, 5_000_000])
def test_a_write_that_does_not_fit_is_an_error_that_names_the_object_and_leaves_nothing(
    tmp_path: Path, size: int
) -> None:
    calls = f"store.write('a/b', bytes({size}))", f"stream(bytes({size}))"

    printed = limited(tmp_path, 100_000, *calls)

    assert printed.count("Could not write 'a/b': ") == 2
    assert printed.count("Make room on that disk.") == 2
    assert [*FolderStore(tmp_path).list(), *tmp_path.rglob("temporary/*")] == []


def test_a_child_forked_while_a_thread_writes_can_write(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.write("o", b"")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                try:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.alarm(60)
                    store.write("o", b"child")
                    os._exit(0)
                finally:
                    os._exit(1)  # Whatever happens, it must not go on with the tests.
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_a_listing_continues_while_objects_are_deleted(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for number in range(50):
        store.write(f"d{number:02d}/o", b"")
    seen = []
    for info in store.list():
        seen.append(info.name)
        store.delete(f"d{50 - len(seen):02d}/o")
    assert seen == [f"d{number:02d}/o" for number in range(25)]


def test_a_bucket_without_the_client_library_is_refused_in_plain_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)

    with pytest.raises(StoreError, match=r"gs://bucket.*\n.*pip install google-cloud-storage"):
        open_store(Location("gs", "bucket"))
