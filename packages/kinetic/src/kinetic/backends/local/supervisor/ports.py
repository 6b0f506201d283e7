"""Reserve a loopback port for the hosts of a job, so that no other job of Kinetic uses it."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from typing import Final

from kinetic_payload.files.private import make_folder, open_private

_RANGE: Final = range(20_000, 32_000)
"""Below the ephemeral ports of Linux and macOS, so that no other program gets one by chance."""


class Port:
    """A port that is reserved until `close`, or the end of this process."""

    def __init__(self, number: int, fd: int) -> None:
        self.number = number
        self._fd = fd

    @property
    def address(self) -> str:
        """The address to connect to."""
        return f"127.0.0.1:{self.number}"

    def close(self) -> None:
        """Release the port."""
        os.close(self._fd)


def reserve_port(folder: str) -> Port:
    """Find a free port; a lock file in *folder* reserves it against other jobs.

    Raises:
        OSError: No port is free.
    """
    make_folder(folder)
    for number in random.sample(_RANGE, 500):
        fd = open_private(f"{folder}/{number}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", number))
        except OSError:
            os.close(fd)
            continue
        return Port(number, fd)
    raise OSError(
        errno.EADDRINUSE, f"No port of 127.0.0.1 from {_RANGE[0]} to {_RANGE[-1]} is free"
    )
