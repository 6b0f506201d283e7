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


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (plain, "plain"),
        (lambda: 1, "lambda"),
        (functools.partial(plain, 1), "plain"),
        (functools.partial(functools.partial(plain), 1), "plain"),
        (Trainer().fit, "fit"),
        (Trainer(), "Trainer"),
    ],
)
def test_whatever_calls_python_code_may_be_decorated(function, name: str) -> None:
    assert check_callable(function) is function
    assert name_of(function) == name


def test_a_plain_function_around_an_async_one_is_fine() -> None:
    @functools.wraps(coroutine)
    def wait() -> None:
        asyncio.run(coroutine())

    assert check_callable(wait) is wait


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
        (None, "Decorate a function"),
    ],
)
def test_what_cannot_run_as_a_job_is_refused_with_advice(function, advice: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_callable(function)

    assert advice in (caught.value.hint or "")
