"""A requirements file says the same through includes, continuations, marks and line ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kinetic_images.declared.requirement_files import RequirementSet, read_requirements
from kinetic_images.errors import DependencyError

HEAD = "requirements.txt"
ENVIRON = {"SUB": "sub", "TOKEN": "t0ken", "lower": "x", "EMPTY": ""}


def declared(text: str | bytes, **others: str) -> RequirementSet:
    """Read *text* with ENVIRON; a keyword `sub__more` is the file `sub/more.txt`."""
    files: Mapping[str, bytes] = {
        HEAD: text.encode() if isinstance(text, str) else text,
        **{f"{name.replace('__', '/')}.txt": one.encode() for name, one in others.items()},
    }

    def read(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return read_requirements(HEAD, read, ENVIRON)


def rows(read: RequirementSet) -> list[str]:
    """Return requirements with their lines, constraints with `<`, options with `-`."""
    return [
        *(f"{one.place.file.removesuffix('.txt')}:{one.place.line} {one.canonical}" for one in read.requirements),
        *(f"< {one.canonical}" for one in read.constraints),
        *(one.line for one in read.options),
    ]  # fmt: skip


LIMITS = {"limits": "-i J\n--extra-index-url B\n--extra-index-url C", "more": "--extra-index-url B"}


@pytest.mark.parametrize(
    ("text", "others", "expected"),
    [
        ("# head\n\nsix==1 \\\n  --hash=sha256:b \\\n  --hash=sha256:a\nx", {}, ["3 six==1 --hash=sha256:a --hash=sha256:b", "6 x"]),
        ("six==\\\n1.0\nx \\\n# why\ny", {}, ["1 six==1.0", "3 x", "5 y"]),
        (b"\xef\xbb\xbfsix\r\nx\r\n", {}, ["1 six", "2 x"]),
        (b"six\rx", {}, ["1 six", "2 x"]),
        ("six\nx".encode("utf-16"), {}, ["1 six", "2 x"]),
        ("x @ https://h/x.zip#sha256=aa # kn:keep\njax # not kn:keeper\n", {}, ["1 x @ https://h/x.zip#sha256=aa # kn:keep", "2 jax"]),
        ("-e git+https://h/x#egg=x # kn:keep", {}, ["1 x @ git+https://h/x#egg=x # kn:keep"]),
        ("-r sub/more.txt\nz", {"sub__more": "six\n--requirement=deep.txt\n-f links", "sub__deep": "x"}, ["sub/more:1 six", "sub/deep:1 x", "2 z", "--find-links sub/links"]),
        ("-c limits.txt\nsix", {"limits": "six<2\n-r other.txt", "other": "x<3"}, ["2 six", "< six<2", "< x<3"]),
        ("-ra.txt\nsix", {"a": f"x\n-r {HEAD}"}, ["a:1 x", "2 six"]),
        ("-r ${SUB}/a.txt\n-f ${SUB}/l\n-i https://${TOKEN}@h/${lower}/${UNSET}\nx @ https://h/${SUB}.zip # ${SUB}\n${EMPTY}y", {"sub__a": "six"},
         ["sub/a:1 six", "4 x @ https://h/sub.zip", "5 y", "--find-links sub/l", "--index-url https://t0ken@h/${lower}/${UNSET}"]),
        ("--extra-index-url https://b\n-i https://me:pw@a\n--pre --no-index", {}, ["--extra-index-url https://b", "--index-url https://me:pw@a", "--pre", "--no-index"]),
        ("-i A\n-i B\n--extra-index-url E\n-i A", {}, ["--extra-index-url E", "--index-url A"]),
        ("-i A\n-r more.txt", {"more": "-i B"}, ["--index-url B"]),
        ("-c limits.txt\n--extra-index-url A\n-i I\n-r more.txt", LIMITS, ["--extra-index-url A", "--index-url I", "--extra-index-url B", "--extra-index-url C"]),
        ("-c limits.txt", {"limits": "-i J"}, ["--index-url J"]),
        ("--only-binary :all:\n--only-binary=:none:,x\n--only-binary :all:", {}, [f"--only-binary {one}" for one in (":all:", ":none:", "x", ":all:")]),
    ],
    ids=range(17),
)  # fmt: skip
def test_lines_have_their_place_and_options_their_order(
    text: str | bytes, others: dict[str, str], expected: list[str]
) -> None:
    found = [row.removeprefix("requirements:") for row in rows(declared(text, **others))]
    assert found == expected


def test_paths_are_told_apart_with_their_place_and_relative_to_the_first_file() -> None:
    text = "-e .[dev]\n-e '../my lib'\n./x.whl\n-egit+https://h/y#egg=y\n-r sub/more.txt"
    read = declared(text, sub__more="-e ./lib")
    assert [(one.path, one.place.line) for one in read.local] == [
        (".", 1),
        ("../my lib", 2),
        ("x.whl", 3),
        ("lib", 1),
    ]
    assert rows(read) == ["requirements:4 y @ git+https://h/y#egg=y"]


def test_an_ignored_option_is_noted_and_a_password_is_not_shown() -> None:
    read = declared("--prefer-binary\n-i https://me:pw@a/simple")
    assert read.notes == (f"{HEAD}:1: --prefer-binary was ignored: uv prefers wheels anyway.",)
    assert read.options[0].canonical == "--index-url https://a/simple"


@pytest.mark.parametrize(
    ("text", "others", "place"),
    [
        *((f"\n{text}\n", {}, rf"^{HEAD}:2: ") for text in ("--nonsense", "-r", "-i 'open", "--no-index six", "-e")),
        ("\n-r https://me:hunter2@h/r.txt", {}, rf"^{HEAD}:2: "),
        (b"six # caf\xe9", {}, HEAD),
        ("-r sub/more.txt", {"sub__more": "\n-r nope.txt"}, r"^sub/more\.txt:2: .*sub/nope\.txt"),
        *(("-c limits.txt\nsix", {"limits": line}, r"^limits\.txt:1: ") for line in ("-e .", "./x.whl", "x @ file:///x.whl")),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_obeyed_is_refused_by_file_and_line(
    text: str | bytes, others: dict[str, str], place: str
) -> None:
    with pytest.raises(DependencyError, match=place) as caught:
        declared(text, **others)
    assert "hunter2" not in str(caught.value)
