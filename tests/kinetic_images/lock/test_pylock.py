"""What is written is read again, by uv too, and holds no secret."""

from __future__ import annotations

import pytest
from locked_project import package

from kinetic_images.errors import DependencyError
from kinetic_images.lock.pylock import kept_address, pylock_text, read_pylock
from kinetic_images.targets import Target

TARGET = Target(python="3.11")
PACKAGES = (
    package("alpha", "1.0", size=7),
    package("beta", "2", file="beta-2.tar.gz", address="file:///with%20blank/beta-2.tar.gz", direct=True, subdirectory="python"),
    package("delta", "", file="", sha256="c" * 40, address="git+ssh://git@example.org/delta", direct=True),
    package("gamma", "3", file="gamma-3.tar.gz", address="https://example.org/gamma-3.tar.gz"),
)  # fmt: skip


def test_a_lock_that_is_written_is_valid_and_read_again() -> None:
    assert read_pylock(pylock_text(PACKAGES), "/p/pylock.toml", TARGET) == PACKAGES
    assert read_pylock(pylock_text([]), "/p/pylock.toml", TARGET) == ()


@pytest.mark.parametrize(
    ("address", "direct", "kept"),
    [
        ("https://me:secret@h/p.whl", False, "https://h/p.whl"),
        ("https://token@h/p.whl", False, "https://h/p.whl"),
        ("https://h/p.whl?token=secret#sha256=1", True, "https://h/p.whl"),
        ("https://h/p.whl?a=1", False, "https://h/p.whl?a=1"),
        ("ssh://git@h/p", True, "ssh://git@h/p"),
        ("ssh://git:secret@h/p", True, "ssh://h/p"),
    ],
)
def test_an_address_is_kept_without_secrets(address: str, direct: bool, kept: str) -> None:
    assert kept_address(address, direct=direct) == kept


def lock(package: str) -> str:
    return f'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "alpha"\n{package}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("packages = 1", r"/p/pylock\.toml: Missing required"),
        (lock('archive = {url = "https://h/a.zip", hashes = {sha256 = "0"}}').replace("1.0", "2.0"), "2.0"),
        (lock('directory = {path = "library"}'), "alpha is a folder on this machine"),
        (
            lock('version = "1"\nwheels = [{url = "https://h/alpha-1-py3-none-any.whl", '
                 'hashes = {md5 = "0"}}]'),
            r"no SHA-256 of alpha-1-py3-none-any\.whl",
        ),
        (
            lock('version = "1"\nwheels = [{url = "https://h/alpha-1-cp312-none-any.whl", '
                 'hashes = {sha256 = "0"}}]'),
            "alpha",
        ),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_installed_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(DependencyError, match=message):
        read_pylock(text, "/p/pylock.toml", TARGET)


def test_a_relative_path_is_relative_to_the_lock() -> None:
    text = lock(
        'version = "1"\nwheels = [{path = "../w/alpha-1-py3-none-any.whl", hashes = {sha256 = "0"}}]'
    )
    (package,) = read_pylock(text, "/p/q/pylock.toml", TARGET)
    assert package.address == "file:///p/w/alpha-1-py3-none-any.whl"
