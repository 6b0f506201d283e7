"""What another Python wrote: its values are read, its byte code is not."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

import kinetic_payload
from kinetic_payload.calls.unpickle import load
from kinetic_payload.errors import PayloadError

OTHER = f"3.{sys.version_info[1] + 1}.0"
HERE = f"3.{sys.version_info[1]}"


class Plain:
    pass


def by_value() -> list[object]:
    class Made:
        def method(self) -> int:
            return 1

    return [lambda: 1, Made, {"deep": [Made()]}]


@pytest.mark.parametrize("kind", range(3))
def test_code_of_another_minor_version_is_refused_by_name(kind: int) -> None:
    data = cloudpickle.dumps(by_value()[kind])

    with pytest.raises(PayloadError, match=rf"by_value.*(lambda|Made).*{OTHER[:-2]}.*{HERE}"):
        load(io.BytesIO(data), OTHER)


@pytest.mark.parametrize("version", ["", f"{HERE}.99"])
def test_code_of_the_same_minor_version_is_loaded(version: str) -> None:
    assert load(io.BytesIO(cloudpickle.dumps(lambda: 42)), version)() == 42


@pytest.mark.parametrize(
    "value", [None, {"a": [1, (2.5, b"x")]}, len, Plain, int, (type(len), {3})]
)
def test_plain_values_and_references_of_another_version_are_loaded(value: object) -> None:
    assert load(io.BytesIO(cloudpickle.dumps(value)), OTHER) == value


def other_python() -> str | None:
    """Return an interpreter of another minor version, if this machine has one that starts."""
    for name in ("python3.11", "python3.12", "python3.13"):
        found = shutil.which(name)
        if found and not name.endswith(HERE):
            done = subprocess.run([found, "-c", "print('here')"], capture_output=True, text=True)
            if done.stdout == "here\n":
                return found
    return None


def test_what_a_real_other_python_wrote(tmp_path: Path) -> None:
    python = other_python()
    if python is None:
        pytest.skip("there is no other Python on PATH")
    shutil.copytree(Path(cloudpickle.__file__).parent, tmp_path / "cloudpickle")
    source = Path(kinetic_payload.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"}  # noqa: TID251

    def written(expression: str) -> bytes:
        code = (
            "import io, sys\nfrom kinetic_payload.calls.value_pickler import ValuePickler\nstream = io.BytesIO()\n"
            f"ValuePickler(stream).dump({expression})\nsys.stdout.buffer.write(stream.getvalue())"
        )
        command = [python, "-c", code]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout

    assert load(io.BytesIO(written("{'loss': [0.5]}")), OTHER) == {"loss": [0.5]}
    with pytest.raises(PayloadError, match="lambda"):
        load(io.BytesIO(written("lambda: 1")), OTHER)


def test_a_call_of_another_version_is_refused_where_its_code_travels_by_value(project) -> None:
    project.write("lib.py", "def main(x):\n    return x + 1\n")
    project.write(
        "run.py",
        """
        import io, dataclasses
        from shipping import calls, dump
        import lib

        def main(x: "Hint"):
            return x

        class Hint:
            def method(self): pass

        def loaded(function):
            header = dataclasses.replace(dump(function, 1)._header, python="3.99.1")
            return calls.load_call(io.BytesIO(dump(function, 1).pickle), header)

        try:
            loaded(main)
        except TypeError as error:
            print(error)
        call = loaded(lib.main)
        print(call.function(*call.args))
        """,
    )

    refused, value = project.run("run.py").splitlines()

    assert refused.startswith("The function main travels by value, as byte code of Python 3.99")
    assert value == "2"


def test_a_damaged_pickle_of_another_version_is_damaged() -> None:
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        load(io.BytesIO(b"not a pickle"), OTHER)
