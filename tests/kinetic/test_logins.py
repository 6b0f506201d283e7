"""Requests to log in again."""

from __future__ import annotations

from kinetic.logins import Logins


def test_a_login_is_asked_for_once_while_it_fails_and_again_when_it_has_expired_once_more() -> None:
    now = 0.0
    logins = Logins(clock=lambda: now)
    asked = []
    for now in (0.0, 1.0, 200.0, 400.0, 9 * 3600.0):
        asked.append(logins.is_new("run: sso login"))

    assert asked == [True, False, False, False, True]
    assert logins.is_new("run: another login")
