"""A pod gets tokens of its own identity for other services of Google Cloud."""

import subprocess
import sys

from kinetic_servers.gcs import GcsServer, Tokens

ASK = "from kinetic_payload.http.google import fresh_credentials; print(fresh_credentials().token)"


def test_the_token_is_that_of_the_machine() -> None:
    with GcsServer(tokens=Tokens()) as server:
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            env={**server.machine_environment, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
