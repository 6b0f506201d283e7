"""What should be read is a warning about a line of the caller's, however deep in us it arises."""

import threading
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from kinetic.notices import Logins, warn_caller


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


def test_a_login_is_asked_for_once_while_it_fails_and_again_when_it_has_expired_once_more() -> None:
    now = 0.0
    logins = Logins(clock=lambda: now)
    asked = []
    for now in (0.0, 1.0, 200.0, 400.0, 9 * 3600.0):
        asked.append(logins.is_new("run: sso login"))

    assert asked == [True, False, False, False, True]
    assert logins.is_new("run: another login")
