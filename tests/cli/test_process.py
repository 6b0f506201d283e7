"""`kinetic` as a process: what it imports, its pipes, its terminal, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .conftest import KINETIC, Laptop


def modules_after(args: list[str], environment: Mapping[str, str]) -> set[str]:
    program = (
        "import json, sys\n"
        "from kinetic_cli.main import main\n"
        f"sys.argv = ['kinetic', *{args!r}]\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    modules: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return set(modules)


def test_help_imports_nothing_but_the_commands(laptop: Laptop) -> None:
    loaded = {name.partition(".")[0] for name in modules_after(["--help"], laptop.environment)}

    heavy = {"kinetic", "kinetic_payload", "kinetic_k8s", "msgspec", "rich", "psutil", "logging"}
    assert not heavy & loaded


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kinetic jobs l", ["plain,list", "plain,logs"]),
        ("kinetic profile use l", ["plain,laptop"]),
        ("kinetic jobs status ", []),
    ],
    ids=["command", "profile", "job, without any"],
)
def test_words_are_completed(words: str, expected: list[str], laptop: Laptop) -> None:
    laptop.kinetic("profile", "create", "laptop", "--backend", "local")
    laptop.environment |= {
        "_KINETIC_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }

    ran = laptop.kinetic()

    assert (ran.stdout.split(), ran.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str, laptop: Laptop) -> None:
    ran = laptop.kinetic("completion", shell)

    assert ran.returncode == 0
    assert f"_KINETIC_COMPLETE={shell}_complete" in ran.stdout


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--version"], 0),
        (["jobs", "--help"], 0),
        (["jobs", "list"], 0),
        (["jobs", "status", "nope"], 1),
        (["jobs", "status", "../etc"], 1),
        (["jobs", "status"], 2),
        ([], 2),
        (["nope"], 2),
        (["--nope"], 2),
    ],
)
def test_exit_codes_distinguish_success_failure_and_wrong_usage(
    args: list[str], code: int, laptop: Laptop
) -> None:
    ran = laptop.kinetic(*args)

    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert ("Usage: kinetic" in ran.stdout + ran.stderr) is (code == 2 or "--help" in args)
    assert bool(ran.stderr) is (code != 0 or args == ["jobs", "list"])


def test_a_reader_that_stops_is_no_error(laptop: Laptop) -> None:
    # Far more than a pipe holds, so that the write certainly meets its closed end.
    producer = laptop.start("accelerators", "--all", "--json")
    assert producer.stdout is not None
    assert producer.stderr is not None
    assert producer.stdout.read(1) == "["
    producer.stdout.close()
    errors = producer.stderr.read()
    producer.stderr.close()

    assert (producer.wait(), errors) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["config"], ["accelerators", "--all", "--json"]])
def test_a_full_disk_is_reported_as_an_error(args: list[str], laptop: Laptop) -> None:
    buffered = {**laptop.environment, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*KINETIC, *args], env=buffered, stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert ran.returncode == 1
    assert ran.stderr == "Error: No space left on device.\n"


def test_characters_that_a_pipe_cannot_encode_are_escaped(laptop: Laptop) -> None:
    laptop.environment |= {"PYTHONIOENCODING": "ascii", "KINETIC_ZONE": "größe-中"}

    ran = laptop.kinetic("config")

    assert ran.returncode == 0
    assert r"gr\xf6\xdfe-\u4e2d" in ran.stdout


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_used_on_a_terminal_unless_no_color_is_set(
    no_color: str, coloured: bool, laptop: Laptop
) -> None:
    # A setting whose value is a status is the nearest thing to a job that needs no backend.
    laptop.environment |= {"NO_COLOR": no_color, "TERM": "xterm", "KINETIC_ZONE": "FAILED"}

    shown = laptop.in_terminal("config")

    assert ("\x1b[31mFAILED\x1b[0m" in shown) is coloured
    assert "\x1b" not in laptop.kinetic("config").stdout
