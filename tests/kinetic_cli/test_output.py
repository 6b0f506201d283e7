"""Tables, JSON and errors as they are printed; text is never read as markup."""

from __future__ import annotations

import io
import json

import pytest

from kinetic.errors import InvalidRequestError
from kinetic_cli.output import Output


def printed(colour: bool = False) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(out, err, colour=colour), out, err


def test_cells_are_neither_cut_nor_wrapped_and_control_characters_are_escaped() -> None:
    output, out, _ = printed()

    output.table(["name"], [("a\x1b[31mb\nc\u202ed",), ("x" * 500,)])

    assert out.getvalue().splitlines() == ["NAME", r"a\x1b[31mb\nc\u202ed", "x" * 500]


def test_only_statuses_are_coloured_and_columns_stay_aligned() -> None:
    output, out, _ = printed(colour=True)

    output.table(["status", "n"], [("FAILED", 1), ("SUCCEEDED", 2)])

    assert out.getvalue().splitlines()[1:] == [
        "\x1b[31mFAILED\x1b[0m     1",
        "\x1b[32mSUCCEEDED\x1b[0m  2",
    ]
    assert not Output(io.StringIO()).colour, "it is not a terminal"


def test_json_is_ascii() -> None:
    output, out, _ = printed()

    output.json({"text": "é\udc80"})

    assert out.getvalue().isascii()
    assert json.loads(out.getvalue()) == {"text": "é\udc80"}


def test_an_error_of_kinetic_is_printed_with_its_notes_and_hint() -> None:
    output, out, err = printed()
    error = InvalidRequestError("It is [bold]wrong[/bold].", hint="Do it right.")
    error.add_note("Seen at noon.")

    output.failure(error)

    assert out.getvalue() == ""
    assert err.getvalue() == "Error: It is [bold]wrong[/bold].\nSeen at noon.\nDo it right.\n"


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ZeroDivisionError("division by zero"),
            "unexpectedly: ZeroDivisionError: division by zero",
        ),
        (ZeroDivisionError("division by zero"), "--debug"),
        (FileNotFoundError(2, "No such file", "/x"), "Error: No such file: /x.\n"),
        (BrokenStr(), "BrokenStr: (its message cannot be shown)"),
    ],
)
def test_an_error_of_another_class_is_printed_with_its_name(error: Exception, message: str) -> None:
    output, _, err = printed()

    output.failure(error)

    assert message in err.getvalue()
