from __future__ import annotations

import pytest

from kinetic_images.builders.layers.conversion import portable, scripts_of


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"#!python\nx\n", b"#!/usr/bin/env python3\nx\n"),
        (b"#!pythonw -E\r\nx\n", b"#!/usr/bin/env python3\nx\n"),
        (b"#!python", b"#!/usr/bin/env python3"),
        (b"#!/bin/sh\nx\n", b"#!/bin/sh\nx\n"),
        (b"\x7fELF\0\n", b"\x7fELF\0\n"),
        (b"#!python" + b"x" * 9000, b"#!python" + b"x" * 9000),
        (b"", b""),
    ],
)
def test_only_the_mark_of_wheels_is_replaced(before: bytes, after: bytes) -> None:
    assert portable(before) == after


def test_both_groups_become_programs_whose_names_keep_their_case() -> None:
    text = "[console_scripts]\nA-b = m:f\n[gui_scripts]\nw = m.n:C.run [extra]\n[other]\nx = m:f\n"

    assert {
        name: script.decode().splitlines()[3:] for name, script in scripts_of(text).items()
    } == {
        "A-b": [
            "from m import f",
            'if __name__ == "__main__":',
            '    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])',
            "    sys.exit(f())",
        ],
        "w": [
            "from m.n import C",
            'if __name__ == "__main__":',
            '    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])',
            "    sys.exit(C.run())",
        ],
    }


@pytest.mark.parametrize(
    "value", ["m", "m:", ":f", "m:f()", "m:f; import os", "m:f\n  import os", "a b:f", "m:1x", ""]
)
def test_an_entry_point_without_a_function_is_an_error(value: str) -> None:
    with pytest.raises(ValueError, match="'x'"):
        scripts_of(f"[console_scripts]\nx = {value}\n")


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", ".wh.x", "é" * 128])
def test_an_invalid_name_of_a_program_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        scripts_of(f"[console_scripts]\n{name} = m:f\n")


def test_a_long_line_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="more than 1000 characters"):
        scripts_of(f"[console_scripts]\nx{' ' * 200_000}y\n")
