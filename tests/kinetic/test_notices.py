"""What should be read is a warning about a line of the caller's, however deep in us it arises."""

import threading
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from kinetic.notices import warn_caller


def ours(caught: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Return what is not said of what other tests left, at whatever moment that is collected."""
    return [found for found in caught if found.category is UserWarning]


def test_a_warning_is_about_the_line_of_whoever_called_us() -> None:
    deep: dict[str, Any] = {"__name__": "kinetic.deep.inside", "warn": warn_caller}
    exec("def inner(): warn('full')\ndef outer(): inner()", deep)

    with pytest.warns(UserWarning, match="full") as caught:
        deep["outer"]()

    assert [found.filename for found in ours(caught)] == [__file__]


def test_a_warning_from_a_thread_is_one_all_the_same() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=warn_caller, args=["the log broke off"])
        thread.start()
        thread.join()

    assert [str(found.message) for found in ours(caught)] == ["the log broke off"]
