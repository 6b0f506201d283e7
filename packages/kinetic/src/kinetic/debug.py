"""What goes with `JobHandle.debug_attach`."""

from __future__ import annotations

import subprocess


def cleanup_port_forward(proc: subprocess.Popen[bytes], timeout: float = 5) -> None:
    """End the process that `debug_attach` returned.

    Args:
        proc: What `debug_attach` returned.
        timeout: Seconds it may take to end by itself before it is killed.
    """
    proc.terminate()
    try:
        proc.wait(timeout)
    except subprocess.TimeoutExpired:
        proc.kill()
        proc.wait()
