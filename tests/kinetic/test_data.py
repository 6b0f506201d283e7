import copy
import errno
import hashlib
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kinetic
from kinetic.data import Data, to_ref
from kinetic.errors import DataError, InvalidRequestError
from kinetic.settings.stat_cache import stat_cache
from kinetic_payload.data import references
from kinetic_payload.project.file_times import FileTimes
from kinetic_payload.project.hashing import hash_file


@kinetic.run(accelerator="cpu", backend="local")
def work(values):
    return values


@pytest.fixture(autouse=True)
def on_the_client(monkeypatch, tmp_path):
    monkeypatch.setattr(references, "_placed", False)
    monkeypatch.delenv("KINETIC_JOB_ID", raising=False)
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "kinetic-home"))


def test_relative_paths_are_resolved_when_the_data_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = Data("./sets/digits/")
    monkeypatch.chdir("/")

    assert data.path == str(tmp_path / "sets/digits")
    assert os.fspath(data) == data.path
    assert repr(data) == "Data('./sets/digits/')"
    assert Data(Path("x.csv")).path == "/x.csv"


def test_a_tilde_is_the_users_home(monkeypatch):
    monkeypatch.setenv("HOME", "/Users/ada")

    assert Data("~/digits").path == "/Users/ada/digits"


def test_local_data_knows_whether_it_is_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")

    assert Data(str(tmp_path)).is_dir
    assert not Data(str(tmp_path / "file")).is_dir
    assert not Data(str(tmp_path / "absent")).is_dir


def test_a_slash_at_the_end_makes_a_bucket_uri_a_folder():
    folder, single = Data("gs://my-bucket/data/"), Data("gs://my-bucket/data")

    assert (folder.is_gcs, folder.is_dir, folder.path) == (True, True, "gs://my-bucket/data/")
    assert (single.is_gcs, single.is_dir) == (True, False)
    assert Data("gs://my-bucket/").is_dir


def test_hugging_face_data_sets_are_folders():
    data = Data("hf://org/name?config_name=en&split=train&revision=v1", hf_trust_remote_code=True)

    assert (data.is_hf, data.is_gcs, data.is_dir, data.hf_trust_remote_code) == (
        True,
        False,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("", {}, "not ''"),
        (None, {}, "not None"),
        (b"x", {}, "not b'x'"),
        ("s3://bucket/x", {}, "s3://"),
        ("https://host/x", {}, "https://"),
        ("file:///x", {}, "file://"),
        ("gs://", {}, "names no bucket"),
        ("gs:///x", {}, "names no bucket"),
        ("gs://Bucket/x", {}, "names no bucket"),
        ("gs://ab/x", {}, "names no bucket"),
        ("gs://my-bucket", {}, "gs://my-bucket/ with a slash"),
        ("gs://my-bucket/a/../b", {}, "object"),
        ("hf://", {}, "names no data set"),
        ("hf://a/b/c", {}, "names no data set"),
        ("hf://imdb?spilt=train", {}, "Did you mean 'split'"),
        ("hf://imdb?split=", {}, "no value"),
        ("hf://imdb?split", {}, "query"),
        ("hf://imdb?split=a&split=b", {}, "twice"),
        ("hf://imdb", {"fuse": True}, "cannot be mounted"),
        ("gs://my-bucket/a,b/", {"fuse": True}, "comma"),
        ("./a,b", {"fuse": True}, "comma"),
        ("./x", {"hf_trust_remote_code": True}, "hf_trust_remote_code is for hf://"),
        ("gs://my-bucket/x", {"hf_trust_remote_code": True}, "hf_trust_remote_code is for hf://"),
    ],
)
def test_what_cannot_be_right_is_refused_with_advice(path, options, said):
    with pytest.raises(InvalidRequestError) as raised:
        Data(path, **options)

    assert said in str(raised.value)
    assert raised.value.hint


def test_making_data_does_not_ask_whether_it_exists():
    assert Data("/nowhere/at/all").path == "/nowhere/at/all"


def test_missing_data_is_refused_when_checked_with_names_that_are_near(tmp_path):
    (tmp_path / "digits").mkdir()
    data = Data(str(tmp_path / "digit"))

    with pytest.raises(DataError) as raised:
        data.check()

    assert f"there is no 'digit' in {tmp_path}" in str(raised.value)
    assert f"Did you mean '{tmp_path}/digits'?" in str(raised.value)


def link_to_nothing(folder: Path) -> Path:
    (folder / "link").symlink_to("absent")
    return folder / "link"


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder / "absent",
        lambda folder: folder / "deep" / "absent",
        lambda folder: Path(__file__) / "below-a-file",
        link_to_nothing,
    ],
)
def test_a_missing_local_path_is_a_file_not_found_also_in_another_process(tmp_path, make):
    path = make(tmp_path)
    data = Data(str(path))

    for use in (data.check, data.content_hash, lambda: work.run_async([data])):
        with pytest.raises(FileNotFoundError) as raised:
            use()
        for error in (
            raised.value,
            pickle.loads(pickle.dumps(raised.value)),
            copy.copy(raised.value),
        ):
            assert isinstance(error, DataError)
            assert type(error).__name__ == "DataNotFoundError"
            assert (error.errno, error.filename) == (errno.ENOENT, str(path))
            assert error.strerror == os.strerror(errno.ENOENT)
            assert error.message.startswith(f"Data('{path}') does not exist: ")
            assert str(error) == f"{error.message}\n{error.hint}"
            assert error.hint


def test_a_missing_parent_is_what_is_said_to_be_missing(tmp_path):
    with pytest.raises(DataError, match="there is no 'sets' in "):
        Data(str(tmp_path / "sets" / "deep" / "digits")).check()


def test_links_to_nothing_pipes_and_unreadable_files_are_refused(tmp_path):
    (tmp_path / "link").symlink_to("absent")
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(DataError, match=r"is a broken link.\nIt points to 'absent'"):
        Data(str(tmp_path / "link")).check()
    with pytest.raises(DataError, match="neither a file nor a folder"):
        Data(str(tmp_path / "pipe")).check()
    if os.geteuid() != 0:
        (tmp_path / "secret").touch(mode=0)
        with pytest.raises(DataError, match="permission denied"):
            Data(str(tmp_path / "secret")).check()


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + "/below", "x/" * 3000])
def test_what_the_system_does_not_even_look_for_is_refused_in_words(tmp_path, name):
    data = Data(f"{tmp_path}/{name}")

    assert not data.is_dir
    with pytest.raises(DataError, match=r"cannot be read: File name too long\.\nCheck the path"):
        data.check()


def test_remote_data_is_not_looked_for_on_this_machine():
    Data("gs://my-bucket/x").check()
    Data("hf://imdb").check()


def test_the_hash_of_a_file_covers_its_name_and_contents(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"hello")
    inner = hashlib.sha256(b"a.txt\0hello").digest()

    assert Data(str(file)).content_hash() == hashlib.sha256(b"file:" + inner).hexdigest()
    assert Data(str(tmp_path)).content_hash() != Data(str(file)).content_hash()


@pytest.mark.parametrize("uri", ["gs://my-bucket/x", "hf://imdb"])
def test_data_with_a_uri_has_no_hash(uri):
    with pytest.raises(DataError, match="not on this machine") as caught:
        Data(uri).content_hash()
    assert isinstance(caught.value, ValueError)


def test_the_hash_follows_contents_and_not_times(tmp_path):
    (tmp_path / "tree").mkdir()
    file = tmp_path / "tree" / "a.txt"
    file.write_bytes(b"hello")
    os.utime(file, (1, 1))
    before = Data(str(tmp_path / "tree")).content_hash()
    os.utime(file, (2, 2))
    assert Data(str(tmp_path / "tree")).content_hash() == before
    file.write_bytes(b"world")
    os.utime(file, (2, 2))
    assert Data(str(tmp_path / "tree")).content_hash() != before


def test_processes_that_hash_at_once_agree_and_remember_for_each_other(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for n in range(50):
        (tree / str(n)).write_bytes(bytes([n]) * 1000)
    if not hash_file(tree / "0", "0", times=FileTimes()).settled:
        pytest.skip("files are never cached on this file system")
    # What is young is not remembered: it may change.
    while not all(
        hash_file(path, path.name, times=times).lasting
        for times in [FileTimes()]
        for path in tree.iterdir()
    ):
        time.sleep(0.02)  # noqa: TID251
    code = f"from kinetic.data import Data; print(Data({str(tree)!r}).content_hash())"
    at_once = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]

    hashes = {process.communicate()[0].strip() for process in at_once}

    assert hashes == {Data(str(tree)).content_hash()}
    cache = stat_cache(tmp_path / "kinetic-home", tree)
    assert all(cache.get(path.name, path.stat()) for path in tree.iterdir())


def test_a_broken_profiles_file_does_not_keep_data_from_being_hashed(tmp_path, monkeypatch):
    (tmp_path / "profiles.json").write_text("{")
    monkeypatch.setenv("KINETIC_PROFILES_FILE", str(tmp_path / "profiles.json"))

    assert len(Data(str(tmp_path / "profiles.json")).content_hash()) == 64


def test_remote_data_has_neither_a_hash_nor_a_path_here():
    with pytest.raises(DataError, match="not on this machine"):
        Data("gs://my-bucket/x").content_hash()
    with pytest.raises(DataError, match="no path on this machine"):
        os.fspath(Data("hf://imdb"))


def test_data_is_compared_by_identity_and_can_be_a_key():
    one, other = Data("/x"), Data("/x")

    assert one != other
    assert len({one, other}) == 2


def test_copies_are_the_same_data():
    data = Data("/x")

    assert copy.copy(data) is data
    assert copy.deepcopy({"k": [data]})["k"][0] is data


def test_data_pickles_as_itself_where_no_call_is_being_pickled():
    data = pickle.loads(pickle.dumps(Data("gs://my-bucket/x", fuse=True)))

    assert (data.path, data.fuse) == ("gs://my-bucket/x", True)


def test_inside_a_job_making_data_touches_nothing_and_using_it_says_so(monkeypatch):
    monkeypatch.setenv("KINETIC_JOB_ID", "job")
    data = Data("./digits", fuse=True)

    assert repr(data) == "Data('./digits', fuse=True)"
    for use in (os.fspath, open, Data.content_hash, lambda data: data.path, lambda d: d.is_dir):
        with pytest.raises(DataError) as raised:
            use(data)
        assert "Data('./digits', fuse=True) was not shipped with this call" in str(raised.value)
        assert "Pass it as an argument or in volumes" in str(raised.value)


def test_inside_a_job_the_working_directory_may_be_gone(tmp_path):
    code = (
        "import os; os.mkdir('x'); os.chdir('x'); os.rmdir('../x')\n"
        "from kinetic.data import Data; print(Data('./digits', hf_trust_remote_code=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"KINETIC_JOB_ID": "job"},  # noqa: TID251
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "Data('./digits', hf_trust_remote_code=True)\n", done.stderr


def test_data_imports_with_the_standard_library_and_the_light_payload_alone():
    code = (
        "import sys; before = set(sys.modules); import kinetic.data\n"
        "print(*sorted({n.partition('.')[0] for n in set(sys.modules) - before}"
        " - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["kinetic", "kinetic_payload"]


@pytest.mark.parametrize(
    ("given", "kind", "source", "name", "is_dir"),
    [
        ("gs://my-bucket/a/b.h5", "gcs", "gs://my-bucket/a/b.h5", "b.h5", False),
        ("gs://my-bucket/a/b/", "gcs", "gs://my-bucket/a/b/", "b", True),
        ("gs://my-bucket/", "gcs", "gs://my-bucket/", "my-bucket", True),
        ("hf://org/name?split=train", "hf", "hf://org/name?split=train", "name", True),
        ("sets/digits.csv", "local", "sets/digits.csv", "digits.csv", False),
        ("..", "local", "..", "user", True),
    ],
)
def test_a_reference_says_what_a_worker_needs(
    given, kind, source, name, is_dir, tmp_path, monkeypatch
):
    folder = tmp_path / "user" / "project"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)

    ref = to_ref(Data(given), "d0", digest="ab", mount="/data")

    assert (ref.kind, ref.source, ref.name, ref.is_dir) == (kind, source, name, is_dir)
    assert (ref.key, ref.digest, ref.mount) == ("d0", "ab", "/data")


def test_a_reference_to_what_is_shown_in_place_says_where_that_is(tmp_path):
    data = Data(str(tmp_path), fuse=True)

    assert data.is_local
    assert to_ref(data, "d0", in_place=True).local_path == str(tmp_path)
    assert to_ref(data, "d0", digest="ab").local_path is None


def test_splits_can_be_joined_in_a_uri():
    from kinetic_payload.data.sources import parse_hf

    assert parse_hf("hf://imdb?split=train+test").split == "train+test"
    assert parse_hf("hf://imdb?split=train[:10%]").split == "train[:10%]"
