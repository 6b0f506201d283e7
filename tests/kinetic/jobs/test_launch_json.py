from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.jobs.launch_json import with_configuration

OURS: dict[str, Any] = {"name": "Kinetic job", "connect": {"port": 1}, "list": [1, "two"]}


def parsed(text: str) -> Any:
    """Parse JSON with comments, which no string of these tests contains."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return json.loads(re.sub(r",(\s*[]}])", r"\1", text))


@pytest.mark.parametrize("before", [None, "", " \n"])
def test_a_new_file_has_only_our_configuration(before: str | None) -> None:
    assert json.loads(with_configuration(before, OURS)) == {
        "version": "0.2.0",
        "configurations": [OURS],
    }


THEIRS = """\
// Mine.
{
    "version": "0.2.0", /* [{ */
    "configurations": [
        // The server.
        {
            "name": "Server \\"a\\" // b",
            "args": ["]", "}"], // with, commas
        },
        {"name": "Last"} // the last
        // nothing follows
    ],
    "compounds": [],
}
"""


def test_it_is_added_before_the_others_and_comments_stay_in_place() -> None:
    after = with_configuration(THEIRS, OURS)

    above, bracket, below = THEIRS.partition('"configurations": [')
    assert after.startswith(f"{above}{bracket}\n        {{")
    assert after.endswith(f"        }},{below}")
    names = [one["name"] for one in parsed(after.replace("// b", "b"))["configurations"]]
    assert names == ["Kinetic job", 'Server "a" b', "Last"]


def test_it_replaces_only_itself() -> None:
    once = with_configuration(THEIRS, OURS)

    twice = with_configuration(once, {**OURS, "connect": {"port": 2}})

    assert twice == once.replace('"port": 1', '"port": 2')
    assert with_configuration(twice, OURS) == once


@pytest.mark.parametrize(
    "before",
    [
        "{ }",
        '{"a": 1}',
        '{"a": 1,}',
        '{\n  "a": [1, -2.5e3, true, null] // b\n}',
        '{"configurations": []}',
        '{"configurations": [ ] // none\n}',
        '{"configurations": [{},]}',
        '{"compounds": [{"configurations": ["a"]}], "configurations": [{}]}',
        '{"configurations": [{"name": 1}, {"name": null}, 7]}',
        '{"configurations": [\n  {}, // one\n  // end\n]}\n// end',
        '{\r\n  "configurations": [\r\n    {}\r\n  ]\r\n}\r\n',
    ],
)
def test_the_rest_of_the_file_stays(before: str) -> None:
    was = parsed(before)

    now = parsed(with_configuration(before, OURS))

    assert now.pop("configurations") == [OURS, *was.pop("configurations", [])]
    assert now == was


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("[]", 1),
        ('{"a": 1} {}', 1),
        ('{\n"configurations": {}}', 2),
        ('{\n\n"configurations": [', 3),
        ('{"a" 1}', 1),
        ('{"a": 1 "b": 2}', 1),
        ('{"a": "open\n}', 1),
        ('{"a": "\\x"}', 1),
        ("{ /* open }", 1),
    ],
)
def test_an_unreadable_file_is_refused_with_its_line(before: str, line: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"\(line {line}\)") as refused:
        with_configuration(before, OURS)
    assert "add the printed configuration" in refused.value.hint
