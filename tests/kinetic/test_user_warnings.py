"""A warning points at a line of the caller's code, however deep in ours it arises."""

from kinetic.user_warnings import Logins


def test_a_login_is_new_once_while_it_fails_and_again_hours_later() -> None:
    now = 0.0
    logins = Logins(clock=lambda: now)
    asked = []
    for now in (0.0, 1.0, 200.0, 400.0, 9 * 3600.0):
        asked.append(logins.is_new("run: sso login"))

    assert asked == [True, False, False, False, True]
    assert logins.is_new("run: another login")
