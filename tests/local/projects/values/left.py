import ctypes
import os
import signal
import sys
import time

from cases import case, main


@case
def zero():
    sys.exit(0)


@case
def none():
    sys.exit()


@case
def three():
    sys.exit(3)


@case
def words():
    sys.exit("no such file")


@case
def interrupt():
    raise KeyboardInterrupt


@case
def at_once():
    os._exit(7)


@case
def segfault():
    ctypes.string_at(0)


@case
def abort():
    os.abort()


@case
def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@case
def told():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


if __name__ == "__main__":
    main()
