"""`kinetic` as a process: what it imports, its pipes, its terminal, its exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

KINETIC = (sys.executable, "-m", "kinetic_cli")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """This process's environment, with a home of its own and nothing else set."""
    for name in ("PROFILE", "PROFILES_FILE", "BACKEND", "PROJECT", "STORE", "HOME"):
        monkeypatch.delenv(f"KINETIC_{name}", raising=False)
    for name in ("GOOGLE_CLOUD_PROJECT", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return {**os.environ, "KINETIC_HOME": str(tmp_path / "home")}  # noqa: TID251 - for a child


def kinetic(*args: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KINETIC, *args], env=environment, capture_output=True, text=True, encoding="utf-8"
    )


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


def test_help_imports_nothing_but_the_commands(environment: dict[str, str]) -> None:
    loaded = {name.partition(".")[0] for name in modules_after(["--help"], environment)}

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
def test_words_are_completed(words: str, expected: list[str], environment: dict[str, str]) -> None:
    kinetic("profile", "create", "laptop", "--backend", "local", environment=environment)
    variables = {
        "_KINETIC_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }

    ran = kinetic(environment={**environment, **variables})

    assert (ran.stdout.split(), ran.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str, environment: dict[str, str]) -> None:
    ran = kinetic("completion", shell, environment=environment)

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
    args: list[str], code: int, environment: dict[str, str]
) -> None:
    ran = kinetic(*args, environment=environment)

    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert ("Usage: kinetic" in ran.stdout + ran.stderr) is (code == 2 or "--help" in args)
    assert bool(ran.stderr) is (code != 0 or args == ["jobs", "list"])


def test_a_reader_that_stops_is_no_error(environment: dict[str, str]) -> None:
    # Far more than a pipe holds, so that the write certainly meets its closed end.
    producer = subprocess.Popen(
        [*KINETIC, "accelerators", "--all", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert producer.stdout is not None
    assert producer.stderr is not None
    assert producer.stdout.read(1) == b"["
    producer.stdout.close()
    errors = producer.stderr.read()
    producer.stderr.close()

    assert (producer.wait(), errors) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["config"], ["accelerators", "--all", "--json"]])
def test_a_full_disk_is_reported_as_an_error(args: list[str], environment: dict[str, str]) -> None:
    buffered = {**environment, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*KINETIC, *args], env=buffered, stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert ran.returncode == 1
    assert ran.stderr == "Error: No space left on device.\n"


def test_characters_that_a_pipe_cannot_encode_are_escaped(environment: dict[str, str]) -> None:
    strange = {**environment, "PYTHONIOENCODING": "ascii", "KINETIC_ZONE": "größe-中"}

    ran = kinetic("config", environment=strange)

    assert ran.returncode == 0
    assert r"gr\xf6\xdfe-\u4e2d" in ran.stdout


def on_a_terminal(*args: str, environment: Mapping[str, str]) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*KINETIC, *args], env=environment, stdout=theirs, stderr=subprocess.DEVNULL
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # Linux reports in this way that the other end is closed.
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_used_on_a_terminal_unless_no_color_is_set(
    no_color: str, coloured: bool, environment: dict[str, str]
) -> None:
    # A setting whose value is a status is the nearest thing to a job that needs no backend.
    chosen = {**environment, "NO_COLOR": no_color, "TERM": "xterm", "KINETIC_ZONE": "FAILED"}

    shown = on_a_terminal("config", environment=chosen)

    assert ("\x1b[31mFAILED\x1b[0m" in shown) is coloured
    assert "\x1b" not in kinetic("config", environment=chosen).stdout
