"""Generated trees and ignore files: a snapshot holds what git would add, for the reason git gives."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kinetic_payload.project.snapshot import take_snapshot

BYTES = [*b"aaaabbbbccAB12-][!^\\ \t\r:*?#_.\x01\x0b\x7f", 0xFF, 0xA9]
CHARACTERS = [*(bytes((byte,)) for byte in BYTES), "é".encode(), "日".encode()]
RANGES = b"a-c 0-9 A-Z c-a a- -a !-~ \\a-c a-\\c \x01-\x1f \x80-\xff +-- a-] --a".split(b" ")
CLASSES = (
    b"alnum alpha blank cntrl digit graph lower print punct space upper xdigit foo Digit".split()
)
ENDS = [b" ", b"  ", b"\t", b"\\", b"\\ ", b" \t", b"\t ", b"\\  ", b"\r", b"\0x", b"\\\\ "]
STARTS = [b"#", b" ", b"\t", b"*", b"!", b"**", b"/", b"//", b"\\", b"\xef\xbb\xbf", b"\r"]


class Generator:
    """Names, trees, and lines that are likely to be about them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def name(self) -> bytes:
        while True:
            name = b"".join(self.random.choices(CHARACTERS, k=self.random.randint(1, 4)))
            # A name that leads upwards on other systems is never archived.
            if name.strip(b".\\"):
                return name

    def paths(self) -> list[bytes]:
        found: list[bytes] = []
        for _ in range(self.random.randint(3, 9)):
            start = self.random.choice(found).rpartition(b"/")[0] if found else b""
            names = [self.name() for _ in range(self.random.randint(1, 3))]
            found.append(b"/".join([start, *names] if start else names))
        return found

    def character_class(self, character: bytes) -> bytes:
        out = b"[" + self.random.choice([b"", b"", b"!", b"^"])
        out += b"]" if self.happens(0.1) else b""
        for _ in range(self.random.randint(1, 3)):
            name = b"[:" + self.random.choice(CLASSES)
            other = self.random.choice(CHARACTERS)
            kinds = [character, other, b"\\" + other, self.random.choice(RANGES), b"[", b"/"]
            names = [name + b":]", name + b"]", name]
            weights = [20, 10, 6, 12, 3, 2, 24, 3, 2]
            out += self.random.choices([*kinds, *names], weights)[0]
        return out + (b"]" if self.happens(0.93) else b"")

    def part(self, name: bytes) -> bytes:
        if self.happens(0.15):
            return b"**"
        if self.happens(0.5):
            return name
        return b"".join(
            self.random.choices(
                [one, b"?", b"*", b"**", self.character_class(one), b"\\" + one],
                [30, 15, 20, 7, 28, 10],
            )[0]
            for one in (name[at : at + 1] for at in range(len(name)))
        )

    def line(self, paths: Sequence[bytes]) -> bytes:
        names = self.random.choice(paths).split(b"/")
        if self.happens(0.5):
            names = names[self.random.randrange(len(names)) :]
        line = self.part(names[0])
        for name in names[1:]:
            rare = [b"//", b"\\/", b"**/", b"/**", b"*/", b"[/]", b"/**/"]
            line += self.random.choice(rare if self.happens(0.2) else [b"/"]) + self.part(name)
        line = (b"/" if self.happens(0.2) else b"") + line + (b"/" if self.happens(0.15) else b"")
        line = (b"!" if self.happens(0.25) else b"") + line
        line = (self.random.choice(STARTS) if self.happens(0.05) else b"") + line
        return line + (self.random.choice(ENDS) if self.happens(0.05) else b"")

    def ignore_file(self, paths: Sequence[bytes]) -> bytes:
        end = self.random.choice([b"\n", b"\n", b"\r\n"])
        lines = [self.line(paths) + end for _ in range(self.random.randint(1, 4))]
        start = b"\xef\xbb\xbf" if self.happens(0.05) else b""
        return start + b"".join(lines)[: -len(end) if self.happens(0.3) else None]

    def grow(self, folder: bytes) -> None:
        paths = self.paths()
        for path in paths:
            try:
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                if self.happens(0.07):
                    os.symlink(self.random.choice([b".", b"nowhere"]), os.path.join(folder, path))
                else:
                    with open(os.path.join(folder, path), "xb"):
                        pass
            except OSError:
                continue  # There is something else already, or the system knows no such names.
        self.write(os.path.join(folder, b".gitignore"), paths)
        for inner in sorted({path.partition(b"/")[0] for path in paths if b"/" in path}):
            below = [path[len(inner) + 1 :] for path in paths if path.startswith(inner + b"/")]
            if self.happens(0.25) and os.path.isdir(os.path.join(folder, inner)):
                self.write(os.path.join(folder, inner, b".gitignore"), below)

    def write(self, file: bytes, paths: Sequence[bytes]) -> None:
        with open(file, "wb") as stream:
            stream.write(self.ignore_file(paths))


def git(root: Path, *arguments: str, given: bytes = b"") -> list[bytes]:
    env = {"PATH": os.defpath, "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, env=env, input=given, capture_output=True, check=False)
    # `check-ignore` fails where nothing is ignored.
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(shutil.which("git", path=os.defpath) is None, reason="there is no git")
@pytest.mark.parametrize(("seed", "ignore_case"), [(1, False), (2, False), (3, True)])
def test_a_snapshot_holds_what_git_would_add(tmp_path: Path, seed: int, ignore_case: bool) -> None:
    root = tmp_path / "repository"
    generator = Generator(seed)
    git(tmp_path, "init", "-q", str(root))
    git(root, "config", "core.ignorecase", str(ignore_case).lower())
    git(root, "config", "core.excludesFile", str(tmp_path / "mine"))
    (root / ".git" / "info").mkdir(exist_ok=True)
    some = [b"*/" + generator.name() for _ in range(6)]
    generator.write(os.fsencode(root / ".git" / "info" / "exclude"), some)
    generator.write(os.fsencode(tmp_path / "mine"), some)
    for number in range(100):
        generator.grow(os.fsencode(root / str(number)))

    snapshot = take_snapshot(root, no_defaults=True)

    shipped = {os.fsencode(entry.path) for entry in snapshot.entries if entry.kind != "dir"}
    shipped = {path for path in shipped if not path.startswith(b".git/")}
    assert shipped == set(git(root, "ls-files", "-z", "--others", "--exclude-standard"))
    rules = {os.fsencode(item.path): os.fsencode(item.rule) for item in snapshot.left_out}
    assert len(rules) > 50
    asked = b"\0".join(rules)
    answers = git(root, "check-ignore", "--stdin", "-z", "-v", "-n", "--no-index", given=asked)
    lines = {
        path: b"%s:%s: %s" % (source, line, pattern)
        for source, line, pattern, path in zip(*(answers[at::4] for at in range(4)), strict=True)
    }
    assert rules == lines
