import base64
import hashlib
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from kinetic_payload.errors import DataError, PreconditionFailedError, StoreUnavailableError
from kinetic_payload.layout import INLINE_LIMIT
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_payload.testing import MemoryStore
from kinetic_runner.child.result import (
    UnpicklableValueError,
    dump_error,
    error_info,
    keep,
    short_repr,
)

NAME = "job/attempts/1/host-0.pkl"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(parse_location(str(tmp_path / "store")))


def back(error: BaseException) -> Any:
    return pickle.loads(dump_error(error))


def test_a_small_value_travels_inside(store: Store) -> None:
    kept = keep({"loss": 0.5}, store, NAME)

    assert kept.name is None
    assert kept.inline is not None
    data = base64.b64decode(kept.inline)
    assert pickle.loads(data) == {"loss": 0.5}
    assert (len(data), hashlib.sha256(data).hexdigest()) == (kept.size, kept.digest)
    assert store.stat(NAME) is None


class Meddled(MemoryStore):
    """A store in which somebody else overwrites the next object while it is written."""

    meddles = False

    @contextmanager
    def writer(self, name: str, **options: Any) -> Iterator[BinaryIO]:
        with super().writer(name, **options) as stream:
            yield stream
            if self.meddles:
                self.meddles = False
                self.write(name, b"forged meanwhile")


def test_what_another_put_in_the_place_of_a_signed_jobs_value_is_replaced() -> None:
    store = Meddled()
    error = ValueError("x" * INLINE_LIMIT)
    value = [b"a" * INLINE_LIMIT]
    for kept in (keep, error_info):
        store.write(NAME, b"forged")
        store.meddles = True
        kept(value if kept is keep else error, store, NAME, replace=True)  # type: ignore[operator]

        found = pickle.loads(store.read(NAME))
        assert found == value or str(found) == str(error)
    with pytest.raises(PreconditionFailedError):
        keep(value, store, NAME)


def test_a_large_value_becomes_an_object_with_its_digest(store: Store) -> None:
    value = [b"a" * INLINE_LIMIT, b"b" * 3_000_000, "tail"]

    kept = keep(value, store, NAME)

    data = store.read(NAME)
    assert kept.name == NAME
    assert kept.inline is None
    assert pickle.loads(data) == value
    assert (len(data), hashlib.sha256(data).hexdigest()) == (kept.size, kept.digest)


def test_a_value_that_fails_half_way_leaves_no_object(store: Store) -> None:
    with pytest.raises(UnpicklableValueError, match="cannot be pickled"):
        keep([b"a" * 1_000_000, threading.Lock()], store, NAME)

    assert store.stat(NAME) is None


class Forgetful:
    """A store whose create succeeds, and is retried because the answer was lost."""

    def __init__(self, store: Store, *, spoil: bool = False) -> None:
        self.store = store
        self.reader = store.reader
        self.spoil = spoil

    @contextmanager
    def writer(self, name: str, *, if_generation: int | None = None) -> Iterator[BinaryIO]:
        with self.store.writer(name, if_generation=if_generation) as stream:
            yield stream
        if self.spoil:
            self.store.write(name, b"somebody else's")
        raise PreconditionFailedError("it is there")


class Away:
    """A store that does not answer so many times."""

    def __init__(self, store: Store, times: int) -> None:
        self.store = store
        self.reader = store.reader
        self.times = times

    @contextmanager
    def writer(self, name: str, *, if_generation: int | None = None) -> Iterator[BinaryIO]:
        with self.store.writer(name, if_generation=if_generation) as stream:
            yield stream
            self.times -= 1
            if self.times >= 0:
                raise StoreUnavailableError("no answer")


def test_a_value_waits_for_a_store_that_does_not_answer(store: Store) -> None:
    value = b"a" * 1_000_000

    kept = keep(value, cast("Store", Away(store, 3)), NAME, pause=lambda _: False)

    assert pickle.loads(store.read(NAME)) == value
    assert (kept.name, kept.size) == (NAME, len(store.read(NAME)))
    with pytest.raises(StoreUnavailableError):
        keep(value, cast("Store", Away(store, 1)), "another", pause=lambda _: True)


def test_a_retried_create_accepts_its_own_object(store: Store) -> None:
    kept = keep(b"a" * 1_000_000, cast("Store", Forgetful(store)), NAME)

    assert kept.name == NAME


def test_a_create_that_lost_is_an_error(store: Store) -> None:
    with pytest.raises(PreconditionFailedError):
        keep(b"a" * 1_000_000, cast("Store", Forgetful(store, spoil=True)), NAME)


class LeavesWhilePickled:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


def test_a_value_cannot_leave_while_it_is_pickled(store: Store) -> None:
    with pytest.raises(UnpicklableValueError):
        keep(LeavesWhilePickled(), store, NAME)


class NeedsMore(Exception):
    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"code {code} at {where}")
        self.code = code


class Prefixes(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(f"failed: {what}")


def test_an_init_with_other_arguments_does_not_lose_the_exception() -> None:
    again = back(NeedsMore(7, "step 3"))

    assert type(again) is NeedsMore
    assert (str(again), again.code) == ("code 7 at step 3", 7)


def test_an_init_that_changes_its_argument_does_not_change_it_twice() -> None:
    assert str(back(Prefixes("disk"))) == "failed: disk"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ImportError("no", name="x"),
        StopIteration(3),
        DataError("what", hint="do"),
        ExceptionGroup("both", [ValueError("a"), KeyError("b")]),
    ],
)
def test_exceptions_of_python_and_ours_come_back_whole(error: Exception) -> None:
    again = back(error)

    assert type(again) is type(error)
    assert (str(again), repr(again.args)) == (str(error), repr(error.args))
    assert getattr(again, "hint", None) == getattr(error, "hint", None)


def test_members_of_a_group_are_rebuilt_too() -> None:
    again = back(ExceptionGroup("g", [NeedsMore(1, "a"), Prefixes("b")]))

    assert [str(e) for e in again.exceptions] == ["code 1 at a", "failed: b"]


def test_cause_context_and_notes_travel_along() -> None:
    try:
        try:
            raise KeyError("lr")
        except KeyError as cause:
            raise NeedsMore(1, "x") from cause
    except NeedsMore as raised:
        error = raised
    error.add_note("at step 7")

    again = back(error)

    assert repr(again.__cause__) == "KeyError('lr')"
    assert again.__context__ is again.__cause__
    assert again.__suppress_context__
    assert again.__notes__ == ["at step 7"]


def test_a_cause_that_will_not_pickle_stays_behind() -> None:
    error = ValueError("outer")
    error.__cause__ = ValueError(threading.Lock())

    again = back(error)

    assert str(again) == "outer"
    assert again.__cause__ is None


def test_what_will_not_pickle_goes_home_as_text(store: Store) -> None:
    info = error_info(ValueError("held", threading.Lock()), store, NAME)

    assert info.pickled is None
    assert info.unpicklable is not None
    assert "lock" in info.unpicklable
    assert info.type == "ValueError"
    assert "held" in info.message


class Hostile(Exception):
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


def test_hostile_exceptions_do_not_break_the_report(store: Store) -> None:
    info = error_info(Hostile(), store, NAME)

    assert info.pickled is None
    assert "Hostile" in info.traceback
    assert "Hostile" in short_repr(Hostile())


def test_leaving_is_never_raised_again(store: Store) -> None:
    info = error_info(SystemExit(3), store, NAME)

    assert info.pickled is None
    assert info.unpicklable is not None


def test_a_large_exception_needs_a_store(store: Store) -> None:
    error = ValueError("x" * 1_000_000)

    without = error_info(error, None, NAME)
    kept = error_info(error, store, NAME).pickled

    assert without.pickled is None
    assert kept is not None
    assert pickle.loads(store.read(NAME)).args == error.args


def test_the_repr_of_a_large_value_is_bounded() -> None:
    assert len(short_repr([["x" * 10_000] * 1000] * 1000)) < 3000
