"""The listener and the settings of a forwarder; tests/cluster/gke/test_debug.py runs one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.jobs import port_forwarder
from kinetic.jobs.port_forwarder import listen
from kinetic.settings.settings import Settings


def test_it_listens_on_the_loopback_interface_and_names_a_port_that_cannot_be_used() -> None:
    with listen(0) as listener:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(InvalidRequestError, match=f"Port {port} .*in use") as refused:
            listen(port)
    assert "--port" in refused.value.hint
    with pytest.raises(InvalidRequestError, match=r"Port 65536 .*no such port"):
        listen(65536)


def test_the_process_resolves_the_settings_of_its_parent(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path))
    monkeypatch.setenv("KINETIC_CLUSTER", "of-the-environment")
    monkeypatch.delenv("KINETIC_PROFILE", raising=False)
    here = Settings.from_environment(namespace="given")

    there = Settings.from_environment(**port_forwarder._arguments_of(here))

    assert there == here
    assert port_forwarder._arguments_of(here) == {"namespace": "given"}


def test_without_an_order_it_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", port_forwarder.__name__],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
