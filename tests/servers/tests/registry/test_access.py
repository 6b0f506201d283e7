from __future__ import annotations

from base64 import b64encode

import pytest

from kinetic_servers.registry import Access, User

BOTH = frozenset({"pull", "push"})
PULL = frozenset({"pull"})


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.fixture
def access() -> Access:
    me = User(password="p", grants={"kn/*": BOTH, "base/*": PULL})
    return Access({"me": me, "": User(grants={"public/*": PULL})})


def test_a_token_has_the_permitted_part_of_its_scopes(access: Access) -> None:
    scopes = ["repository:kn/a:pull,push repository:base/b:pull,push", "registry:catalog:*"]
    header = f"Bearer {access.issue('me', scopes)}"

    assert access.check(header, {"kn/a": "push", "base/b": "pull"}) == ("me", "")
    assert access.check(header, {"base/b": "push"}) == ("me", "insufficient")
    assert access.check(header, {"kn/other": "pull"}) == ("me", "insufficient")
    access.revoke()
    assert access.check(header, {"kn/a": "pull"}) == ("", "invalid")
    assert access.check("", {"public/a": "pull"}) == ("", "missing")


def test_a_token_ends(access: Access) -> None:
    access.seconds = -1
    header = f"Bearer {access.issue('me', ['repository:kn/a:pull'])}"
    assert access.check(header, {"kn/a": "pull"}) == ("", "invalid")


def test_basic_access_knows_users_and_anybody(access: Access) -> None:
    access.basic = True

    assert access.check(basic("me", "p"), {"kn/a": "push"}) == ("me", "")
    assert access.check(basic("me", "p"), {"base/a": "push"}) == ("me", "insufficient")
    assert access.check(basic("me", "x"), {"kn/a": "pull"}) == ("", "invalid")
    assert access.check("", {"public/a": "pull"}) == ("", "")
    assert access.check("", {"kn/a": "pull"}) == ("", "missing")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ""),
        (basic("me", "p"), "me"),
        (basic("me", "wrong"), None),
        (basic("nobody", "p"), None),
        (basic("oauth2accesstoken", "direct"), "me"),
        (basic("oauth2accesstoken", "other"), None),
        ("Basic ???", None),
        ("Bearer x", None),
    ],
)
def test_a_login_is_a_user_anybody_or_wrong(
    access: Access, header: str, expected: str | None
) -> None:
    access.direct["direct"] = "me"
    assert access.log_in(header) == expected
