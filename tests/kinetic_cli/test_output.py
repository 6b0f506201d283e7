"""What is printed is readable by people, by pipes, and never read as markup."""

from __future__ import annotations

import io
import json

from kinetic.errors import InvalidRequestError
from kinetic_cli.output import Output


def printed(colour: bool = False) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(out, err, colour=colour), out, err


def test_columns_are_aligned_also_around_wide_and_combining_characters() -> None:
    output, out, _ = printed()

    output.table(["name", "x"], [("モデル", 1), ("e\u0301t", 2), ("plain", None)])

    assert out.getvalue() == "NAME    X\nモデル  1\ne\u0301t      2\nplain   -\n"


def test_control_characters_of_a_cell_are_spelled_out() -> None:
    output, out, _ = printed()

    output.table(["name"], [("a\x1b[31mb\nc\u202ed",)])

    assert out.getvalue().splitlines() == ["NAME", r"a\x1b[31mb\nc\u202ed"]


def test_long_cells_are_neither_cut_nor_wrapped() -> None:
    output, out, _ = printed()

    output.table(["name"], [("x" * 500,)])

    assert "x" * 500 in out.getvalue().splitlines()


def test_only_statuses_are_coloured_and_columns_stay_aligned() -> None:
    output, out, _ = printed(colour=True)

    output.table(["status", "n"], [("FAILED", 1), ("SUCCEEDED", 2)])

    assert out.getvalue().splitlines()[1:] == [
        "\x1b[31mFAILED\x1b[0m     1",
        "\x1b[32mSUCCEEDED\x1b[0m  2",
    ]


def test_a_stream_that_is_no_terminal_is_not_coloured() -> None:
    assert not Output(io.StringIO()).colour


def test_json_is_ascii_so_that_any_pipe_carries_it() -> None:
    output, out, _ = printed()

    output.json({"text": "é\udc80"})

    assert out.getvalue().isascii()
    assert json.loads(out.getvalue()) == {"text": "é\udc80"}


def test_an_error_of_ours_is_message_notes_and_hint() -> None:
    output, out, err = printed()
    error = InvalidRequestError("It is [bold]wrong[/bold].", hint="Do it right.")
    error.add_note("Seen at noon.")

    output.failure(error)

    assert out.getvalue() == ""
    assert err.getvalue() == "Error: It is [bold]wrong[/bold].\nSeen at noon.\nDo it right.\n"


def test_an_unexpected_error_names_itself_and_how_to_learn_more() -> None:
    output, _, err = printed()

    output.failure(ZeroDivisionError("division by zero"))

    assert "unexpectedly: ZeroDivisionError: division by zero" in err.getvalue()
    assert "--debug" in err.getvalue()


def test_an_error_of_the_system_is_said_in_its_words() -> None:
    output, _, err = printed()

    output.failure(FileNotFoundError(2, "No such file or directory", "/x"))

    assert err.getvalue() == "Error: No such file or directory: /x.\n"


def test_an_exception_that_cannot_say_itself_is_still_named() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    output, _, err = printed()

    output.failure(Rude())

    assert "Rude: (its message cannot be shown)" in err.getvalue()
