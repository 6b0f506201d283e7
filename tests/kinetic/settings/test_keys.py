from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from kinetic.errors import ConfigurationError, KineticError, SignatureError
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import write_private
from kinetic_payload.records.encode import encode
from kinetic_payload.records.signing import KEY_SIZE
from kinetic_servers.fakes import a_record

NAME = f"{a_record().job_id}/handle.json"


def test_the_key_of_a_home_is_made_once_and_is_private(tmp_path: Path) -> None:
    home = tmp_path / "not" / "yet"

    key = KeyFile(home).ensure()

    assert len(key) == KEY_SIZE
    assert KeyFile(home).ensure() == key
    assert KeyFile(home).path.read_bytes() == key.hex().encode() + b"\n"
    assert stat.S_IMODE(KeyFile(home).path.stat().st_mode) == 0o600
    assert sorted(path.name for path in home.iterdir()) == [".key.lock", "key"]
    assert KeyFile(tmp_path / "another").ensure() != key


def test_a_key_that_others_may_write_is_refused_with_the_command_that_fixes_it(
    tmp_path: Path,
) -> None:
    key = KeyFile(tmp_path).ensure()
    KeyFile(tmp_path).path.chmod(0o602)

    with pytest.raises(ConfigurationError, match="mode 0602") as refused:
        KeyFile(tmp_path).ensure()

    assert refused.value.hint is not None
    subprocess.run(refused.value.hint.splitlines()[0].removeprefix("Run: "), shell=True, check=True)
    assert KeyFile(tmp_path).ensure() == key


def test_a_copied_key_that_others_may_read_is_made_private(tmp_path: Path) -> None:
    key = KeyFile(tmp_path).ensure()
    KeyFile(tmp_path).path.chmod(0o644)

    assert KeyFile(tmp_path).ensure() == key
    assert stat.S_IMODE(KeyFile(tmp_path).path.stat().st_mode) == 0o600


def test_a_key_that_another_process_makes_meanwhile_is_used(tmp_path: Path) -> None:
    theirs, found = b"k" * KEY_SIZE, list[bytes]()
    with locked(str(tmp_path / ".key.lock")):
        thread = threading.Thread(target=lambda: found.append(KeyFile(tmp_path).ensure()))
        thread.start()
        threading.Event().wait(0.5)  # Time to find that there is no key.
        write_private(KeyFile(tmp_path).path, theirs.hex().encode() + b"\n")
    thread.join()

    assert found == [theirs]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\n",
        b"00" * 31 + b"\n",
        b"00" * 32,
        b"zz" * 32 + b"\n",
        b" 0" * 32 + b"\n",
        b"\xff" * 65,
    ],
)
def test_a_damaged_key_is_reported_and_not_overwritten(tmp_path: Path, damage: bytes) -> None:
    KeyFile(tmp_path).path.write_bytes(damage)

    with pytest.raises(ConfigurationError) as caught:
        KeyFile(tmp_path).ensure()

    assert str(KeyFile(tmp_path).path) in caught.value.message
    assert KeyFile(tmp_path).path.read_bytes() == damage


def test_a_home_that_cannot_hold_a_key_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(KineticError) as caught:
        KeyFile(tmp_path / "file" / "home").ensure()

    assert str(tmp_path / "file") in caught.value.message
    assert "KINETIC_HOME" in str(caught.value.hint)


@pytest.mark.parametrize(
    "case", ["unsigned", "another key", "changed", "another job's", "no key here"]
)
def test_a_record_with_another_signature_is_refused_unless_the_bucket_is_trusted(
    tmp_path: Path, case: str
) -> None:
    home, data = tmp_path / "home", encode(a_record())
    KeySigner(KeyFile(home)).verify(KeySigner(KeyFile(home)).sign(data, NAME), NAME)
    if case == "another key":
        data = KeySigner(KeyFile(tmp_path / "other")).sign(data, NAME)
    elif case == "changed":
        data = KeySigner(KeyFile(home)).sign(data, NAME).replace(b'"cpu"', b'"tpu"')
    elif case == "another job's":
        data = KeySigner(KeyFile(home)).sign(data, "another/handle.json")
    elif case == "no key here":
        data = KeySigner(KeyFile(home)).sign(data, NAME)
        home = tmp_path / "fresh"

    with pytest.raises(SignatureError) as caught:
        KeySigner(KeyFile(home)).verify(data, NAME)

    assert NAME in caught.value.message
    elsewhere = case in ("another key", "no key here")
    todo = f"KINETIC_HOME/key to {home}{os.sep}key" if elsewhere else "run the job again"
    assert todo in str(caught.value.hint)
    assert "KINETIC_TRUST_BUCKET=1" in str(caught.value.hint)
    KeySigner(KeyFile(home), trusting=lambda: True).verify(data, NAME)
    assert not (tmp_path / "fresh").exists()
