"""A requirements file says the same through includes, continuations, marks and line ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_images.declared.requirement_files import (
    RequirementSet,
    joined_lines,
    read_requirements,
)
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


def lines(read: RequirementSet) -> list[str]:
    return [one.canonical for one in read.requirements]


def test_a_continuation_before_hashes_is_one_requirement_at_its_first_line() -> None:
    read = declared("# head\n\nsix==1 \\\n    --hash=sha256:b \\\n    --hash=sha256:a\niniconfig\n")
    assert lines(read) == ["six==1 --hash=sha256:a --hash=sha256:b", "iniconfig"]
    assert [str(one.place) for one in read.requirements] == [f"{HEAD}:3", f"{HEAD}:6"]


def test_a_name_may_be_continued_in_the_middle_of_its_version() -> None:
    assert lines(declared("six==\\\n1.0")) == ["six==1.0"]


def test_a_comment_line_ends_a_continuation() -> None:
    assert [one[:2] for one in joined_lines("six \\\n# why\niniconfig\n")] == [
        (1, "six"),
        (3, "iniconfig"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfsix\r\niniconfig\r\n",
        b"six\riniconfig",
        "six\niniconfig".encode("utf-16"),
    ],
)
def test_byte_order_marks_and_line_ends_change_nothing(data: bytes) -> None:
    assert lines(declared(data)) == ["six", "iniconfig"]


def test_text_that_is_not_utf8_is_refused_by_name() -> None:
    with pytest.raises(DependencyError, match=HEAD):
        declared(b"six # caf\xe9")


def test_a_hash_within_a_url_is_no_comment_and_the_keep_mark_is_read() -> None:
    read = declared("x @ https://h/x.zip#sha256=aa # kn:keep\njax # not kn:keeper\n")
    assert lines(read) == ["x @ https://h/x.zip#sha256=aa # kn:keep", "jax"]


def test_includes_are_inlined_relative_to_the_including_file() -> None:
    read = declared(
        "-r sub/more.txt\nlast", sub__more="six\n--requirement=deep.txt\n-f links", sub__deep="x"
    )
    assert lines(read) == ["six", "x", "last"]
    assert read.requirements[1].place.file == "sub/deep.txt"
    assert [one.line for one in read.options] == ["--find-links sub/links"]


def test_constraints_stay_constraints_also_through_includes() -> None:
    read = declared("-c limits.txt\nsix", limits="six<2\n-r other.txt", other="iniconfig<3")
    assert [one.canonical for one in read.constraints] == ["six<2", "iniconfig<3"]
    assert lines(read) == ["six"]


def test_files_that_include_each_other_are_read_once() -> None:
    assert lines(declared("-r a.txt\nsix", a=f"iniconfig\n-r {HEAD}")) == ["iniconfig", "six"]


def test_a_missing_include_is_named_by_the_line_that_wants_it() -> None:
    with pytest.raises(DependencyError, match=r"^sub/more\.txt:2: .*sub/nope\.txt"):
        declared("-r sub/more.txt", sub__more="\n-r nope.txt")


def test_index_options_keep_their_order_and_hide_their_credentials() -> None:
    read = declared("--extra-index-url https://b\n-i https://me:pw@a/simple\n--pre --no-index")
    assert [one.canonical for one in read.options] == [
        "--extra-index-url https://b",
        "--index-url https://a/simple",
        "--pre",
        "--no-index",
    ]
    assert read.options[1].value == "https://me:pw@a/simple"


def test_variables_in_capitals_are_put_in_everywhere_and_others_stay() -> None:
    read = declared(
        "-r ${SUB}/more.txt\n-f ${SUB}/links\n-i https://${TOKEN}@h/${lower}/${UNSET}\n"
        "x @ https://h/${SUB}.zip # ${SUB}\n${EMPTY}y\n-c ${SUB}/limits.txt",
        sub__more="six",
        sub__limits="x<2",
    )
    assert lines(read) == ["six", "x @ https://h/sub.zip", "y"]
    assert [one.line for one in read.options] == [
        "--find-links sub/links",
        "--index-url https://t0ken@h/${lower}/${UNSET}",
    ]
    assert [one.canonical for one in read.constraints] == ["x<2"]


def test_of_several_indexes_the_last_one_counts_also_from_included_files() -> None:
    assert [one.line for one in declared("-i A\n-i B\n--extra-index-url E\n-i A").options] == [
        "--extra-index-url E",
        "--index-url A",
    ]
    read = declared("-i A\n-r more.txt", more="-i B")
    assert [one.line for one in read.options] == ["--index-url B"]


def test_options_of_a_constraints_file_come_after_those_of_requirements() -> None:
    read = declared(
        "-c limits.txt\n--extra-index-url A\n-i I\n-r more.txt",
        limits="-i J\n--extra-index-url B\n--extra-index-url C",
        more="--extra-index-url B",
    )
    assert [one.line for one in read.options] == [
        "--extra-index-url A",
        "--index-url I",
        "--extra-index-url B",
        "--extra-index-url C",
    ]
    assert [one.line for one in declared("-c limits.txt", limits="-i J").options] == [
        "--index-url J"
    ]


def test_rules_of_binary_packages_keep_their_order() -> None:
    read = declared("--only-binary :all:\n--only-binary=:none:,x\n--only-binary :all:")
    assert [one.line for one in read.options] == [
        "--only-binary :all:",
        "--only-binary :none:",
        "--only-binary x",
        "--only-binary :all:",
    ]


@pytest.mark.parametrize("line", ["-e .", "./x.whl", "x @ file:///x.whl"])
def test_a_path_in_a_constraints_file_is_refused_and_does_not_become_a_requirement(
    line: str,
) -> None:
    with pytest.raises(DependencyError, match=r"^limits\.txt:1: "):
        declared("-c limits.txt\nsix", limits=line)


def test_a_path_in_an_included_file_is_relative_to_the_first_one() -> None:
    (local,) = declared("-r sub/more.txt", sub__more="-e ./lib").local
    assert local.path == "lib"


def test_local_lines_are_told_apart_with_their_place() -> None:
    read = declared("-e .[dev]\n-e '../my lib'\n./x.whl\n-egit+https://h/y#egg=y\n")
    assert [(one.path, one.editable, one.place.line) for one in read.local] == [
        (".", True, 1),
        ("../my lib", True, 2),
        ("x.whl", False, 3),
    ]
    assert lines(read) == ["y @ git+https://h/y#egg=y"]


def test_ignored_options_are_noted() -> None:
    assert declared("--prefer-binary\nsix").notes == (
        f"{HEAD}:1: --prefer-binary was ignored: uv prefers wheels anyway.",
    )


@pytest.mark.parametrize(
    "text", ["--nonsense", "-r", "-r https://h/r.txt", "-i 'open", "--no-index six", "-e"]
)
def test_a_line_that_cannot_be_obeyed_is_refused_by_file_and_line(text: str) -> None:
    with pytest.raises(DependencyError, match=rf"^{HEAD}:2: "):
        declared(f"\n{text}\n")


def test_a_refusal_does_not_show_a_password() -> None:
    with pytest.raises(DependencyError) as caught:
        declared("-r https://me:hunter2@h/r.txt")
    assert "hunter2" not in str(caught.value)


names = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)


@given(
    st.lists(names, unique=True, max_size=6),
    st.sampled_from(["\n", "\r\n", "\n\n", "  # why\n", " \\\n  >=1\n"]),
)
def test_any_names_are_found_whatever_stands_between_them(wanted: list[str], between: str) -> None:
    read = declared("".join(f"{name}{between}" for name in wanted))
    assert [one.name for one in read.requirements] == wanted
