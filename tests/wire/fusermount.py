"""What `fusermount3` does for a FUSE file system, for a root whose system has no such program."""

import ctypes
import os
import socket
import stat
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NOSUID_NODEV = 2 | 4
DETACH = 2


def check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


def mount(place: str, options: list[str], parent: int) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    mode = stat.S_IFMT(Path(place).stat().st_mode)
    given = [f"fd={device}", f"rootmode={mode:o}", "user_id=0", "group_id=0"]
    given += [option for option in options if option in ("allow_other", "default_permissions")]
    flags = NOSUID_NODEV | ("ro" in options)
    data = ",".join(given).encode()
    check(LIBC.mount(b"fuse", os.fsencode(place), b"fuse", flags, data), place)
    with socket.socket(fileno=parent) as pipe:
        socket.send_fds(pipe, [b"\0"], [device])


def main(arguments: list[str]) -> None:
    place = arguments[-1]
    if any(argument.startswith("-u") for argument in arguments):
        check(LIBC.umount2(os.fsencode(place), DETACH), place)
        return
    options = arguments[arguments.index("-o") + 1].split(",") if "-o" in arguments else []
    mount(place, options, int(os.environ["_FUSE_COMMFD"]))  # noqa: TID251 - the protocol's


if __name__ == "__main__":
    main(sys.argv[1:])
