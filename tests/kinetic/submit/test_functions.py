from __future__ import annotations

import asyncio
import functools

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.submit.functions import check_callable, name_of


def plain(x: int) -> int:
    return x


async def coroutine() -> None: ...


def generator():
    yield 1


async def async_generator():
    yield 1


class Trainer:
    def fit(self) -> None: ...

    async def fit_later(self) -> None: ...

    def __call__(self) -> None: ...


class Stream:
    def __call__(self):
        yield 1


@functools.wraps(coroutine)
def wait_for_coroutine() -> None:
    asyncio.run(coroutine())


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (plain, "plain"),
        (lambda: 1, "lambda"),
        (functools.partial(functools.partial(plain), 1), "plain"),
        (Trainer().fit, "fit"),
        (Trainer(), "Trainer"),
        (wait_for_coroutine, "coroutine"),
    ],
)
def test_a_callable_of_python_code_is_accepted(function, name: str) -> None:
    assert check_callable(function) is function
    assert name_of(function) == name


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (coroutine, "asyncio.run"),
        (functools.partial(coroutine), "asyncio.run"),
        (Trainer().fit_later, "asyncio.run"),
        (async_generator, "asyncio.run"),
        (generator, "Return a list"),
        (Stream(), "Return a list"),
        (functools.lru_cache(plain), "lru_cache on top"),
        (functools.partial(functools.cache(plain), 1), "lru_cache on top"),
        (classmethod(plain), "Put @classmethod on top"),
        (staticmethod(plain), "Put @staticmethod on top"),
        (property(plain), "a method"),
        (Trainer, "Decorate a function"),
        (len, "of your own"),
        ([].append, "of your own"),
        (3, "Decorate a function"),
    ],
)
def test_a_callable_that_cannot_run_as_a_job_is_refused_with_advice(function, advice: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_callable(function)

    assert advice in (caught.value.hint or "")
