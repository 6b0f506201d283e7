"""A warning points at a line of the caller's code, however deep in ours it arises."""

import threading
import warnings
from collections.abc import Iterable

from kinetic.user_warnings import Logins, warn_caller


def user_warnings(caught: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Leave out warnings about garbage of other tests, which may be collected at any moment."""
    return [found for found in caught if found.category is UserWarning]


def test_a_warning_from_a_thread_is_issued_too() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=warn_caller, args=["the log broke off"])
        thread.start()
        thread.join()

    assert [str(found.message) for found in user_warnings(caught)] == ["the log broke off"]


def test_a_login_is_new_once_while_it_fails_and_again_hours_later() -> None:
    now = 0.0
    logins = Logins(clock=lambda: now)
    asked = []
    for now in (0.0, 1.0, 200.0, 400.0, 9 * 3600.0):
        asked.append(logins.is_new("run: sso login"))

    assert asked == [True, False, False, False, True]
    assert logins.is_new("run: another login")
