import base64
import hashlib
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kinetic_payload.errors import DataError, PreconditionFailedError, StoreUnavailableError
from kinetic_payload.layout import INLINE_LIMIT
from kinetic_payload.records.host_outcome import Pickled
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_payload.testing import MemoryStore
from kinetic_runner.child.result import (
    ResultStorage,
    UnpicklableValueError,
    dump_error,
    error_info,
    keep_value,
    short_repr,
)

NAME = "job/attempts/1/host-0.pkl"
LARGE = b"a" * 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(parse_location(str(tmp_path / "store")))


def keep(value: Any, store: Store, name: str = NAME, **options: Any) -> Pickled:
    return keep_value(value, ResultStorage(store=store, name=name, **options))


@pytest.mark.parametrize(
    "value",
    [{"loss": 0.5}, [b"a" * INLINE_LIMIT, b"b" * 3_000_000, "tail"]],
    ids=["small", "large"],
)
def test_a_small_value_is_in_the_result_and_a_large_one_is_an_object(
    store: Store, value: Any
) -> None:
    kept = keep(value, store)

    small = isinstance(value, dict)
    data = base64.b64decode(kept.inline or "") if small else store.read(NAME)
    assert (kept.inline is not None, kept.name) == (small, None if small else NAME)
    assert pickle.loads(data) == value
    assert (len(data), hashlib.sha256(data).hexdigest()) == (kept.size, kept.digest)
    assert (store.stat(NAME) is None) == small


class Faulty(MemoryStore):
    """A store of which each write calls *then* when it ends or, before it appears, *during*."""

    during: Callable[[], object] = staticmethod(lambda: None)
    then: Callable[[], object] = staticmethod(lambda: None)

    @contextmanager
    def writer(self, name: str, **options: Any) -> Iterator[BinaryIO]:
        with super().writer(name, **options) as stream:
            yield stream
            self.during()
        self.then()


def once(action: Callable[[], object], times: int = 1) -> Callable[[], object]:
    """Return a function that calls *action* so many times."""
    calls = iter(range(times))
    return lambda: action() if next(calls, None) is not None else None


def fail(error: Exception) -> None:
    raise error


def test_an_object_of_another_writer_is_replaced_for_a_signed_job_and_else_an_error() -> None:
    store = Faulty()
    error, value = ValueError("x" * INLINE_LIMIT), [b"a" * INLINE_LIMIT]
    replacing = ResultStorage(store=store, name=NAME, replace=True)
    for kept in (keep_value, error_info):
        store.during = lambda: None
        store.write(NAME, b"forged")
        store.during = once(lambda: MemoryStore.write(store, NAME, b"forged meanwhile"))
        kept(value if kept is keep_value else error, replacing)  # type: ignore[operator]

        found = pickle.loads(store.read(NAME))
        assert found == value or str(found) == str(error)
    with pytest.raises(PreconditionFailedError):
        keep(value, store)


class LeavesWhilePickled:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


@pytest.mark.parametrize("bad", [threading.Lock(), LeavesWhilePickled()], ids=["lock", "exit"])
def test_a_value_that_fails_while_it_is_pickled_leaves_no_object(store: Store, bad: Any) -> None:
    with pytest.raises(UnpicklableValueError, match="cannot be pickled"):
        keep([LARGE, bad], store)

    assert store.stat(NAME) is None


def test_a_write_is_retried_while_the_store_does_not_respond() -> None:
    store = Faulty()
    store.during = once(lambda: fail(StoreUnavailableError("no answer")), times=4)

    kept = keep(LARGE, store, pause=lambda _: False)

    assert pickle.loads(store.read(NAME)) == LARGE
    assert (kept.name, kept.size) == (NAME, len(store.read(NAME)))
    store.during = once(lambda: fail(StoreUnavailableError("no answer")))
    with pytest.raises(StoreUnavailableError):
        keep(LARGE, store, "another", pause=lambda _: True)


def test_a_create_whose_response_was_lost_is_recognised_by_its_content() -> None:
    """A retried create fails, although the first try succeeded."""
    store = Faulty()
    store.then = once(lambda: fail(PreconditionFailedError("it exists")))

    assert keep(LARGE, store).name == NAME

    def lose() -> None:
        store.write("another", b"of another writer")
        raise PreconditionFailedError("it exists")

    store.then = once(lose)
    with pytest.raises(PreconditionFailedError):
        keep(LARGE, store, "another")


class NeedsMore(Exception):
    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"code {code} at {where}")
        self.code = code


class Prefixes(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(f"failed: {what}")


def back(error: BaseException) -> Any:
    return pickle.loads(dump_error(error))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ImportError("no", name="x"),
        StopIteration(3),
        DataError("what", hint="do"),
        ExceptionGroup("both", [NeedsMore(1, "a"), Prefixes("b")]),
        NeedsMore(7, "step 3"),
        Prefixes("disk"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_is_unpickled_with_all_its_values(error: Exception) -> None:
    again = back(error)

    assert type(again) is type(error)
    assert (str(again), repr(again.args)) == (str(error), repr(error.args))
    for name in ("hint", "code"):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_cause_context_and_notes_are_pickled_too() -> None:
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


def test_a_cause_that_cannot_be_pickled_is_left_out() -> None:
    error = ValueError("outer")
    error.__cause__ = ValueError(threading.Lock())

    again = back(error)

    assert str(again) == "outer"
    assert again.__cause__ is None


class Hostile(Exception):
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Changes(Exception):
    def __reduce__(self) -> Any:
        return Changes, ("after",)


@pytest.mark.parametrize(
    ("error", "text", "why"),
    [
        (Changes("before"), "before", "message differs"),
        (ValueError("held", threading.Lock()), "held", "lock"),
        (Hostile(), "Hostile", "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3", "SystemExit is not raised again"),
    ],
)
def test_an_exception_that_cannot_be_raised_again_is_reported_as_text(
    store: Store, error: BaseException, text: str, why: str
) -> None:
    info = error_info(error, ResultStorage(store=store, name=NAME))

    assert info.pickled is None
    assert text in info.traceback
    assert info.type.endswith(type(error).__name__)
    assert why in str(info.unpicklable)


def test_a_large_exception_needs_a_store(store: Store) -> None:
    error = ValueError("x" * 1_000_000)

    assert error_info(error, None).pickled is None
    assert error_info(error, ResultStorage(store=store, name=NAME)).pickled is not None
    assert pickle.loads(store.read(NAME)).args == error.args


def test_the_repr_of_a_value_is_bounded_and_never_fails() -> None:
    assert len(short_repr([["x" * 10_000] * 1000] * 1000)) < 3000
    assert "Hostile" in short_repr(Hostile())
