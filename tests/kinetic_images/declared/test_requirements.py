"""One line of text becomes one requirement, however it is spelled."""

from __future__ import annotations

import pytest

from kinetic_images.declared.requirements import (
    Place,
    parse_local,
    parse_requirement,
    without_credentials,
)
from kinetic_images.errors import DependencyError
from kinetic_images.targets import target_environment

HERE = Place("requirements.txt", 7)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Foo.Bar[B_x,a] >=1, <2", "foo-bar[a,b-x]<2,>=1"),
        ("foo (>=1)", "foo>=1"),
        ("six;python_version<'3'", 'six ; python_version < "3"'),
        ("six --hash=sha256:b --hash sha256:a", "six --hash=sha256:a --hash=sha256:b"),
        ("x @ git+https://u:p@h/x.git@main#subdirectory=a", "x @ git+https://h/x.git@main#subdirectory=a"),
        ("x@https://h/x-1.zip ; os_name=='posix'", 'x @ https://h/x-1.zip ; os_name == "posix"'),
        ("https://u:p@h/pkg_x-1.0-py3-none-any.whl", "pkg-x @ https://h/pkg_x-1.0-py3-none-any.whl"),
        ("git+https://h/x.git#egg=Some_Name[q]", "some-name[q] @ git+https://h/x.git#egg=Some_Name[q]"),
        ("git+https://h/x.git", "git+https://h/x.git"),
    ],
)  # fmt: skip
def test_spellings_of_the_same_become_the_same_line(text: str, canonical: str) -> None:
    assert parse_requirement(text, HERE).canonical == canonical


@pytest.mark.parametrize("text", ["foo=1", "six ; python_versio<'3'", "not a name", "six -r x"])
def test_an_invalid_requirement_is_named_by_file_and_line(text: str) -> None:
    with pytest.raises(DependencyError, match=r"^requirements\.txt:7: "):
        parse_requirement(text, HERE)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (".", "."),
        ("./wheels/x-1-py3-none-any.whl", "wheels/x-1-py3-none-any.whl"),
        ("x-1-py3-none-any.whl ; python_version>'3'", "x-1-py3-none-any.whl"),
        ("../lib[extra]", "../lib"),
        ("lib @ ./lib", "lib"),
        ("lib @ file:///a%20b/c", "/a b/c"),
        ("git+file:///srv/repo", "/srv/repo"),
        ("six", None),
        ("six>=1 ; sys_platform=='a/b'", None),
        ("a[b]", None),
        ("git+https://h/x", None),
        ("a @ https://h/a.zip", None),
    ],
)
def test_a_path_of_this_machine_is_told_from_a_name_or_an_address(
    text: str, path: str | None
) -> None:
    local = parse_local(text, HERE)
    assert (local and local.path) == path


@pytest.mark.parametrize("text", ["six @", "six@ ; python_version > '3'", "x @ file:", "[extra]"])
def test_an_address_that_is_missing_is_refused_and_is_not_the_project_itself(text: str) -> None:
    with pytest.raises(DependencyError, match=r"^requirements\.txt:7: "):
        parse_local(text, HERE, editable=text.startswith("["))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@host/simple", "https://host/simple"),
        ("git+ssh://git@host/x and ftp://a:b@c@host/", "git+ssh://host/x and ftp://host/"),
        ("https://${USER}:${TOKEN}@host/simple", "https://host/simple"),
        ("x@example.org https://host/@scope/a", "x@example.org https://host/@scope/a"),
    ],
)
def test_credentials_are_cut_out_of_every_url(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@pytest.mark.parametrize(
    ("marker", "platform", "python", "holds"),
    [
        ("sys_platform == 'linux'", "linux-x86_64", "3.11", True),
        ("sys_platform == 'darwin'", "x86_64-manylinux_2_36", "3.11", False),
        ("platform_machine == 'arm64'", "macosx-14.0-arm64", "3.12.1", True),
        ("platform_machine == 'arm64'", "aarch64-apple-darwin", "3.12.1", True),
        ("platform_machine == 'aarch64'", "linux-aarch64", "3.12.1", True),
        ("python_full_version >= '3.11.7'", "linux-x86_64", "3.11.7", True),
        ("extra == 'dev'", "linux-x86_64", "3.11", False),
        ("python_full_version >= '3.11.9'", "linux-x86_64", "3.11", True),
        ("python_full_version < '3.11.1'", "linux-x86_64", "3.11", True),
        ("python_full_version < '3.11'", "linux-x86_64", "3.11", False),
        ("platform_release >= '1'", "linux-x86_64", "3.11.7", True),
    ],
)
def test_markers_are_judged_for_the_target(
    marker: str, platform: str, python: str, holds: bool
) -> None:
    requirement = parse_requirement(f"six ; {marker}", HERE)
    assert requirement.applies(target_environment(platform, python)) is holds
