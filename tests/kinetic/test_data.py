import copy
import errno
import hashlib
import os
import pickle
from pathlib import Path

import pytest

import kinetic
from kinetic.data import Data, to_ref
from kinetic.errors import DataError, InvalidRequestError
from kinetic_payload.data import references
from kinetic_payload.data.sources import parse_hf


@kinetic.run(accelerator="cpu", backend="local")
def work(values):
    return values


@pytest.fixture(autouse=True)
def on_the_client(monkeypatch, tmp_path):
    monkeypatch.setattr(references, "_placed", False)
    monkeypatch.delenv("KINETIC_JOB_ID", raising=False)
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "kinetic-home"))


def test_a_relative_path_is_resolved_when_the_data_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/Users/ada")
    monkeypatch.chdir(tmp_path)
    data = Data("./sets/digits/")
    monkeypatch.chdir("/")

    assert data.path == os.fspath(data) == str(tmp_path / "sets/digits")  # Nothing is there.
    assert repr(data) == "Data('./sets/digits/')"
    assert Data(Path("x.csv")).path == "/x.csv"
    assert Data("~/digits").path == "/Users/ada/digits"


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("", {}, "not ''"), (None, {}, "not None"), (b"x", {}, "not b'x'"),
        ("s3://bucket/x", {}, "s3://"), ("https://host/x", {}, "https://"), ("file:///x", {}, "file://"),
        ("gs://", {}, "names no bucket"), ("gs:///x", {}, "names no bucket"),
        ("gs://Bucket/x", {}, "names no bucket"), ("gs://ab/x", {}, "names no bucket"),
        ("gs://my-bucket", {}, "gs://my-bucket/ with a slash"), ("gs://my-bucket/a/../b", {}, "object"),
        ("hf://", {}, "names no data set"), ("hf://a/b/c", {}, "names no data set"),
        ("hf://imdb?spilt=train", {}, "Did you mean 'split'"), ("hf://imdb?split=", {}, "no value"),
        ("hf://imdb?split", {}, "query"), ("hf://imdb?split=a&split=b", {}, "twice"),
        ("hf://imdb", {"fuse": True}, "cannot be mounted"),
        ("gs://my-bucket/a,b/", {"fuse": True}, "comma"), ("./a,b", {"fuse": True}, "comma"),
        ("./x", {"hf_trust_remote_code": True}, "hf_trust_remote_code is for hf://"),
        ("gs://my-bucket/x", {"hf_trust_remote_code": True}, "hf_trust_remote_code is for hf://"),
    ],
)  # fmt: skip
def test_an_invalid_path_or_option_is_refused_with_a_hint(path, options, message):
    with pytest.raises(InvalidRequestError) as raised:
        Data(path, **options)

    assert message in str(raised.value)
    assert raised.value.hint


def test_splits_may_be_joined_in_a_uri():
    assert parse_hf("hf://imdb?split=train+test").split == "train+test"
    assert parse_hf("hf://imdb?split=train[:10%]").split == "train[:10%]"


def link_to_nothing(folder: Path) -> Path:
    (folder / "link").symlink_to("absent")
    return folder / "link"


@pytest.mark.parametrize(
    ("make", "submit"),
    [
        (lambda folder: folder / "absent", False),
        (lambda folder: folder / "deep" / "absent", False),
        (lambda folder: Path(__file__) / "below-a-file", False),
        (link_to_nothing, True),
    ],
)
def test_a_missing_local_path_is_a_file_not_found_also_in_another_process(tmp_path, make, submit):
    path = make(tmp_path)
    data = Data(str(path))

    for use in (data.check, data.content_hash, *[lambda: work.run_async([data])] * submit):
        with pytest.raises(FileNotFoundError) as raised:
            use()
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            assert isinstance(error, DataError)
            assert (error.errno, error.filename) == (errno.ENOENT, str(path))
            assert error.strerror == os.strerror(errno.ENOENT)
            assert error.message.startswith(f"Data('{path}') does not exist: ")
            assert str(error) == f"{error.message}\n{error.hint}"
            assert error.hint


def test_the_missing_part_of_a_path_is_named_with_similar_names(tmp_path):
    (tmp_path / "digits").mkdir()

    with pytest.raises(DataError) as raised:
        Data(str(tmp_path / "digit")).check()
    assert f"there is no 'digit' in {tmp_path}" in str(raised.value)
    assert f"Did you mean '{tmp_path}/digits'?" in str(raised.value)
    with pytest.raises(DataError, match="there is no 'sets' in "):
        Data(str(tmp_path / "sets" / "deep" / "digits")).check()


def test_broken_links_pipes_and_unreadable_files_are_refused(tmp_path):
    link_to_nothing(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(DataError, match=r"is a broken link.\nIt points to 'absent'"):
        Data(str(tmp_path / "link")).check()
    with pytest.raises(DataError, match="neither a file nor a folder"):
        Data(str(tmp_path / "pipe")).check()
    if os.geteuid() != 0:
        (tmp_path / "secret").touch(mode=0)
        with pytest.raises(DataError, match="permission denied"):
            Data(str(tmp_path / "secret")).check()


@pytest.mark.parametrize("uri", ["gs://my-bucket/x", "hf://imdb"])
def test_remote_data_is_not_checked_and_has_neither_a_hash_nor_a_local_path(uri):
    data = Data(uri)

    data.check()
    with pytest.raises(DataError, match="not on this machine") as caught:
        data.content_hash()
    assert isinstance(caught.value, ValueError)
    with pytest.raises(DataError, match="no path on this machine"):
        os.fspath(data)


def test_the_hash_covers_names_and_contents_but_not_times(tmp_path):
    file = tmp_path / "tree" / "a.txt"
    file.parent.mkdir()
    file.write_bytes(b"hello")
    os.utime(file, (1, 1))
    inner = hashlib.sha256(b"a.txt\0hello").digest()
    of_file, of_tree = Data(str(file)).content_hash(), Data(str(file.parent)).content_hash()

    assert of_file == hashlib.sha256(b"file:" + inner).hexdigest()
    assert of_tree != of_file
    os.utime(file, (2, 2))
    assert Data(str(file.parent)).content_hash() == of_tree
    file.write_bytes(b"world")
    os.utime(file, (2, 2))
    assert Data(str(file.parent)).content_hash() != of_tree


def test_data_is_compared_by_identity_which_copies_keep():
    one, other = Data("/x"), Data("/x")

    assert one != other
    assert len({one, other}) == 2
    assert copy.copy(one) is one
    assert copy.deepcopy({"k": [one]})["k"][0] is one


def test_data_outside_a_call_is_pickled_as_itself():
    data = pickle.loads(pickle.dumps(Data("gs://my-bucket/x", fuse=True)))

    assert (data.path, data.fuse) == ("gs://my-bucket/x", True)


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
def test_a_reference_has_the_kind_source_and_name_of_its_data(
    given, kind, source, name, is_dir, tmp_path, monkeypatch
):
    folder = tmp_path / "user" / "project"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)

    ref = to_ref(Data(given), "d0", digest="ab", mount="/data")

    assert (ref.kind, ref.source, ref.name, ref.is_dir) == (kind, source, name, is_dir)
    assert (ref.key, ref.digest, ref.mount) == ("d0", "ab", "/data")
    assert Data(given).is_local is (kind == "local")


def test_a_reference_has_a_local_path_only_if_its_data_is_read_in_place(tmp_path):
    data = Data(str(tmp_path), fuse=True)

    assert to_ref(data, "d0", in_place=True).local_path == str(tmp_path)
    assert to_ref(data, "d0", digest="ab").local_path is None
