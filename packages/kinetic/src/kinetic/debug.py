"""`cleanup_port_forward`: ends the port forward of `JobHandle.debug_attach`."""

from __future__ import annotations

import subprocess


def cleanup_port_forward(proc: subprocess.Popen[bytes], timeout: float = 5) -> None:
    """End the process that `debug_attach` returned.

    Args:
        proc: The process.
        timeout: Seconds to wait for it to terminate before it is killed.
    """
    proc.terminate()
    if proc.stdin is not None:
        proc.stdin.close()
    try:
        proc.wait(timeout)
    except subprocess.TimeoutExpired:
        proc.kill()
        proc.wait()
