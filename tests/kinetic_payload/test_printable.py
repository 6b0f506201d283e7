from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_payload.errors import KineticError, ObjectNotFoundError
from kinetic_payload.printable import printable, printable_line, printable_log

NASTY = st.text(
    st.one_of(
        st.sampled_from("\x1b\x9b[]0;?2Jm\x07\r\n\t\x08\x00\x7f\u202e\u2028"), st.characters()
    )
)


def controls(text: str) -> set[str]:
    found = {char for char in text if unicodedata.category(char) == "Cc"}
    return found | {char for char in text if char in "\u2028\u2029\u202a\u202e\u2066\u2069\u200f"}


@given(NASTY)
def test_no_control_character_is_left_in_any_text(text: str) -> None:
    assert controls(printable(text)) <= {"\n", "\t"}
    assert controls(printable_line(text)) == set()
    assert printable(printable(text)) == printable(text)


@given(NASTY)
def test_a_log_keeps_only_colours_tabs_and_carriage_returns(line: str) -> None:
    shown = printable_log(line)

    assert controls(shown) <= {"\t", "\r", "\x1b"}
    for after in shown.split("\x1b")[1:]:
        inside, end, _ = after.partition("m")
        assert end
        assert inside[0] == "["
        assert set(inside[1:]) <= set("0123456789;:")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m\tthen", "\x1b[1;31mred\x1b[0m\tthen"),
        ("10 %\r20 %", "10 %\r20 %"),
        ("a\x1b[2K\x1b[1Ab", "ab"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[\x1b[2K2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202ereversed", "\\u202ereversed"),
    ],
)
def test_printed_lines_of_a_log(line: str, shown: str) -> None:
    assert printable_log(line) == shown


def test_errors_hold_no_control_characters() -> None:
    error = KineticError("a\x1b]0;x\x07\nb", hint="c\x1b[2J")

    assert str(error) == "a\\x1b]0;x\\x07\nb\nc\\x1b[2J"
    assert ObjectNotFoundError("\x9b2J").args == ("\\x9b2J",)
