import os
import resource
import signal
import sys
import threading
import time

from cases import case, main


class Own:
    def __repr__(self):
        return "Own" if type(self) is Own else "a stranger"


class Needs(Exception):
    def __init__(self, code, *, why):
        super().__init__(f"{code}: {why}")
        self.code = code


class WithLock(Exception):
    def __init__(self):
        super().__init__("held")
        self.lock = threading.Lock()


class Speechless(Exception):
    def __str__(self):
        raise ValueError("no words")


@case
def own():
    return Own()


@case
def text():
    return "a\udcffb" + "x" * 3_000_000


@case
def unpicklable():
    return {"a": [1, {"lock": threading.Lock()}]}


@case
def coroutine():
    async def later():
        return 1

    return later()


@case
def needs():
    raise Needs(3, why="so")


@case
def with_lock():
    raise WithLock()


@case
def speechless():
    raise Speechless()


@case
def chained():
    try:
        1 / 0
    except ZeroDivisionError as error:
        problem = ExceptionGroup("[red] \udcff", [Needs(4, why="x")])
        problem.add_note("a note of mine")
        raise problem from error


@case
def only_there():
    from elsewhere import Odd

    raise Odd("only there")


@case
def left():
    sys.exit("no such file")


@case
def interrupt():
    raise KeyboardInterrupt


@case
def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@case
def terminated():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


@case
def limits():
    return resource.getrlimit(resource.RLIMIT_NOFILE)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 9000))
    sys.modules["elsewhere"] = None
    main()
