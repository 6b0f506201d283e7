from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic_runner.command_line import Arguments
from kinetic_runner.parent.attempt import run_attempt


class BeginsError(Exception):
    pass


class Told:
    """A child that is as quick as can be."""

    mark = "mark"
    stop_fd = 0
    adopting = False

    def adopt_orphans(self) -> None:
        self.adopting = True

    def send_task(self, _text: str) -> None:
        assert self.adopting, "what it orphans now is nobody's, and lives on"
        raise BeginsError


def test_orphans_are_kept_before_there_can_be_any(tmp_path: Path) -> None:
    arguments = Arguments(
        store=str(tmp_path), job="job", payload_digest="0", workspace=str(tmp_path)
    )
    child: Any = Told()
    signals: Any = SimpleNamespace(wait=lambda _: False)

    with pytest.raises(BeginsError):
        run_attempt(arguments, {}, child, signals)
