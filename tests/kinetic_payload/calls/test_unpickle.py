"""Pickles of another Python or an earlier Kinetic: values are loaded, byte code of another Python is refused."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import kinetic_payload
from kinetic_payload.calls import unpickle
from kinetic_payload.calls.module_globals.restore import UntravelledGlobalError
from kinetic_payload.calls.unpickle import load
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import PayloadError, StoreError

OTHER = f"3.{sys.version_info[1] + 1}.0"
HERE = f"3.{sys.version_info[1]}"


class Plain:
    pass


def by_value() -> list[object]:
    class Made:
        def method(self) -> int:
            return 1

    return [lambda: 1, Made, {"deep": [Made()]}]


def test_code_of_another_minor_version_is_refused_by_name_and_values_are_loaded() -> None:
    for value in by_value():
        with pytest.raises(PayloadError, match=rf"by_value.*(lambda|Made).*{OTHER[:-2]}.*{HERE}"):
            load(io.BytesIO(cloudpickle.dumps(value)), OTHER)
    for plain in (None, {"a": [1, (2.5, b"x")]}, len, Plain, int, (type(len), {3})):
        assert load(io.BytesIO(cloudpickle.dumps(plain)), OTHER) == plain
    for same in ("", f"{HERE}.99"):
        assert load(io.BytesIO(cloudpickle.dumps(lambda: 42)), same)() == 42
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        load(io.BytesIO(b"not a pickle"), OTHER)


def other_python() -> str | None:
    """Return an interpreter of another minor version, if this machine has one that starts."""
    for name in ("python3.11", "python3.12", "python3.13"):
        found = shutil.which(name)
        if found and not name.endswith(HERE):
            done = subprocess.run([found, "-c", "print('here')"], capture_output=True, text=True)
            if done.stdout == "here\n":
                return found
    return None


def test_values_of_a_real_other_python_are_loaded_and_its_code_is_refused(tmp_path: Path) -> None:
    python = other_python()
    if python is None:
        pytest.skip("there is no other Python on PATH")
    shutil.copytree(Path(cloudpickle.__file__).parent, tmp_path / "cloudpickle")
    source = Path(kinetic_payload.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"}  # noqa: TID251

    def written(expression: str) -> bytes:
        code = (
            "import sys\nfrom kinetic_payload.calls.value_pickler import ValuePickler\n"
            f"ValuePickler(sys.stdout.buffer).dump({expression})"
        )
        return subprocess.run(
            [python, "-c", code], env=environment, stdout=subprocess.PIPE, check=True
        ).stdout

    assert load(io.BytesIO(written("{'loss': [0.5]}")), OTHER) == {"loss": [0.5]}
    with pytest.raises(PayloadError, match="lambda"):
        load(io.BytesIO(written("lambda: 1")), OTHER)


def test_a_call_with_code_of_another_version_is_refused(project) -> None:
    project.write_all("""
        # lib.py
        def main(x):
            return x + 1
        # run.py
        import io, dataclasses
        from shipping import calls, dump
        import lib

        def main(x: "Hint"):
            return x

        class Hint:
            def method(self): pass

        def loaded(function):
            stream = io.BytesIO()
            dump(function, 1).write(stream, refs=(), context_digest=None, kinetic_version="0")
            stream.seek(0)
            header = dataclasses.replace(calls.read_header(stream), python="3.99.1")
            return calls.load_call(stream, header)

        try:
            loaded(main)
        except TypeError as error:
            print(error)
        call = loaded(lib.main)
        print(call.function(*call.args))
    """)

    refused, value = project.run("run.py").splitlines()

    assert refused.startswith("The function main travels by value, as byte code of Python 3.99")
    assert value == "2"


PICKLES = Path(__file__).parent / "pickles"
"""Made with Python 3.11 and the sources of commit b9f8808, by `write.py`, which `git log` has."""

of_this_python = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="byte code of Python 3.11"
)


def earlier(name: str) -> Any:
    with (PICKLES / f"{name}.pkl").open("rb") as stream:
        return load(stream, "3.11.7")


def test_values_of_an_earlier_version_are_loaded() -> None:
    found = earlier("plain")

    assert (found["settings"].width, found["settings"].depth) == (3, 4)
    assert found["user"].__supertype__ is int
    assert found["reference"] == DataRef(
        key="d0", kind="local", source="data", is_dir=True, name="data"
    )
    assert (earlier("colour").name, earlier("colour").value) == ("BLUE", 2)


def test_exceptions_of_an_earlier_version_are_loaded_with_their_causes() -> None:
    pytest.importorskip("kinetic_runner", reason="one is an exception of the runner's")
    refused, awaited = earlier("errors").exceptions

    assert isinstance(refused, UntravelledGlobalError)
    assert (str(refused), str(awaited)) == (
        "It was set.\nPass it.",
        "The function returned a coroutine.",
    )
    assert isinstance(refused.__cause__, StoreError)


@of_this_python
def test_functions_and_classes_of_an_earlier_version_are_loaded() -> None:
    point, cached = earlier("classes")

    assert earlier("function")(14) == 42
    assert (point.total(), cached(3), cached.cache_parameters()["maxsize"]) == (3, 6, 3)
    assert earlier("users_error").code == 7


@of_this_python
def test_pytrees_of_an_earlier_version_are_pytrees() -> None:
    jax = pytest.importorskip("jax")

    assert jax.tree_util.tree_leaves(earlier("pytree")) == [1, 2]


@pytest.mark.skipif(sys.version_info[:2] == (3, 11), reason="its byte code runs here")
@pytest.mark.parametrize("name", ["function", "classes"])
def test_code_of_an_earlier_version_is_refused_by_another_python(name: str) -> None:
    with pytest.raises(PayloadError, match=r"byte code of Python 3\.11"):
        earlier(name)


class ModuleOfEarlierName:
    def __reduce__(self) -> Any:
        return cloudpickle.cloudpickle.subimport, ("kinetic_payload.assertions",)


def test_a_former_module_name_leads_to_the_current_module() -> None:
    found = load(io.BytesIO(pickle.dumps(ModuleOfEarlierName())), HERE)

    assert found.__name__ == "kinetic_payload.calls.assertions"


@pytest.mark.parametrize("name", sorted(set(unpickle._MOVED.values())))
def test_every_module_that_was_moved_is_where_the_loader_looks(name: str) -> None:
    pytest.importorskip(name.partition(".")[0], reason="alone, the payload has no such package")

    assert import_module(name)


@pytest.mark.parametrize(
    ("earlier_name", "name"),
    [
        ("_payload.stores.gcs.patience\nBrokenAnswerError", "NoResponseError"),
        ("_payload.stores.gcs.patience\nPatienceError", "RetryError"),
        ("_payload.stores.gcs.origin\nForeignAnswerError", "NoResponseError"),
        ("_payload.concurrently\nStopped", "Stopped"),
        # What `JobHandle.outcome()` returns.
        (".outcomes\nJobOutcome", "JobOutcome"),
        ("_payload.records\nOutcome", "Outcome"),
        ("_payload.reports\nHostOutcome", "HostOutcome"),
        ("_payload.reports\nErrorInfo", "ErrorInfo"),
        ("_payload.reports\nPickled", "Pickled"),
    ],
)
def test_a_former_name_of_a_class_leads_to_the_current_class(earlier_name: str, name: str) -> None:
    if earlier_name.startswith("."):
        pytest.importorskip("kinetic", reason="alone, the payload has no such package")
    found = load(io.BytesIO(f"ckinetic{earlier_name}\n.".encode()), HERE)

    assert found.__name__ == name
