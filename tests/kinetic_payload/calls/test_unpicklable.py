import abc
import ctypes
import dataclasses
import functools
import os
import pickle
import socket
import tempfile
import threading
import types
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.calls.dump import DumpedCall, dump_call
from kinetic_payload.errors import PayloadError

LOCK = threading.Lock()


@dataclasses.dataclass
class Holder:
    x: Any = None


class Slotted:
    __slots__ = ("h",)

    def __init__(self, h: Any) -> None:
        self.h = h


class Refusing:
    def __reduce__(self) -> Any:
        raise KeyError("no thank you")


def abstract_with_a_lock() -> type:
    class Shape(
        abc.ABC
    ):  # Creating it sets attributes that cannot be pickled, and are not the cause.
        lock = LOCK

    return Shape


def train(cfg: Any = None, *rest: Any, model: Any = None) -> None:
    pass


def uses_lock() -> Any:
    return LOCK


def dump(tmp_path: Path, function: Any, *args: Any, **kwargs: Any) -> DumpedCall:
    plan: Any = types.SimpleNamespace(root=tmp_path, paths=("",), cwd="", main=None, kind="script")
    return dump_call(function, args, kwargs, plan=plan, ships=lambda path: False)


def refusal(tmp_path: Path, function: Any, *args: Any, **kwargs: Any) -> PayloadError:
    with pytest.raises(PayloadError) as raised:
        dump(tmp_path, function, *args, **kwargs)
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (abstract_with_a_lock(), ".lock is a _thread.lock"),
        (LOCK, "cfg is a _thread.lock"),
        ({"deep": [LOCK]}, "cfg['deep'][0] is a _thread.lock"),
        ([1, {2: (3, LOCK)}], "cfg[1][2][1] is"),
        ({1, LOCK}, "cfg (member of the set) is"),
        ({LOCK: 1}, "(key <unlocked _thread.lock"),
        (Holder({"k": [1, Slotted(LOCK)]}), "cfg.x['k'][1].h is"),
        (functools.partial(train, 1, model=LOCK), "cfg.keywords['model'] is"),
        (functools.partial(train, 1, LOCK), "cfg.args[1] is"),
        (ValueError("x", LOCK), "cfg.args[1] is"),
        (types.SimpleNamespace(a=1, b=LOCK), "cfg.b is"),
        (Refusing(), "Refusing (KeyError: 'no thank you')"),
        ((x for x in "abc"), "cfg is a generator"),
        (uses_lock, "cfg (global 'LOCK') is a _thread.lock"),
        (Holder(uses_lock), "cfg.x (global 'LOCK') is"),
        (lambda x=LOCK: x, "cfg (default of 'x') is"),
        (lambda *, x=LOCK: x, "cfg (default of 'x') is"),
    ],
)
def test_the_piece_that_cannot_be_pickled_is_named(tmp_path, value, named):
    message = str(refusal(tmp_path, train, value))

    assert "Cannot pickle argument 'cfg' of train" in message
    assert named in message


def test_closure_variables_and_bound_objects_are_named(tmp_path):
    s = LOCK

    class Model:
        def __init__(self) -> None:
            self.lock = LOCK

        def fit(self) -> None:
            pass

    assert "(closure variable 's') is a _thread.lock" in str(refusal(tmp_path, lambda: s))
    message = str(refusal(tmp_path, Model().fit))
    assert "the function" in message
    assert ".__self__.lock is a _thread.lock" in message


def test_arguments_are_named_as_the_function_names_them(tmp_path):
    assert "argument 'rest[1]'" in str(refusal(tmp_path, train, 1, 2, LOCK))
    assert "argument 'model'" in str(refusal(tmp_path, train, model=LOCK))


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (threading.Lock, "Create it inside the function: locks"),
        (threading.local, "Create it inside the function: locks"),
        (lambda: Path(os.devnull).open("wb"), "Pass the file's path as kinetic.Data"),  # noqa: SIM115
        (lambda: Path(__file__).open(), "Pass the file's path as kinetic.Data"),  # noqa: SIM115
        (lambda: (x for x in ()), "Pass a list of its items"),
        (lambda: ctypes.pointer(ctypes.c_int(1)), "inside the function, pass what it is created from"),
        (socket.socket, "a connection belongs to one process"),
    ],
)  # fmt: skip
def test_the_advice_fits_the_piece(tmp_path, make, advice):
    value = make()
    with closing(value) if hasattr(value, "close") else nullcontext():
        assert advice in str(refusal(tmp_path, train, [value]).hint)


def test_a_piece_is_found_among_very_many_and_too_deep_nesting_is_reported(tmp_path):
    many: list[Any] = [{"index": index} for index in range(20_000)]
    many[17_777]["index"] = LOCK
    deep: Any = []
    for _ in range(100_000):  # Python 3.14 pickles 20,000.
        deep = [deep]

    assert "cfg[17777]['index'] is" in str(refusal(tmp_path, train, many))
    assert "nested too deeply" in str(refusal(tmp_path, train, 1, deep).hint)


def test_a_large_call_names_its_largest_arguments_also_buffers_of_arrays(tmp_path):
    buffer = pickle.PickleBuffer(bytearray(3_000_000))
    dumped = dump(tmp_path, train, buffer, 1, model=bytes(2_000_000))

    assert dumped.oversize_warning(50) is None
    warning = dumped.oversize_warning(1) or ""
    assert warning.startswith(
        "The call of train pickles to 5.0 MB; the largest parts: argument 'cfg' (3.0 MB), "
        "argument 'model' (2.0 MB)."
    )


def test_a_large_call_names_the_variables_of_its_code(project):
    project.write_all("""
        # run.py
        from shipping import dump

        TABLE = bytes(3_000_000)

        def helper():
            return TABLE

        def train(cfg, weights=bytes(2_000_000)):
            return helper(), weights, train

        print(dump(train, 1).oversize_warning(1))
    """)

    message = project.run("run.py")

    assert (
        "parts: global 'TABLE' of helper (3.0 MB), default of 'weights' of train (2.0 MB). "
    ) in message


def test_pickling_a_large_call_leaves_no_file(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    dumped = dump(tmp_path, train, bytes(70 * 1024 * 1024))
    assert dumped.size > 70 * 1024 * 1024
    assert list(folder.iterdir()) == []

    refusal(tmp_path, train, [bytes(70 * 1024 * 1024), LOCK])
    assert list(folder.iterdir()) == []
