import threading

from cases import case, main


class Needs(Exception):
    def __init__(self, code, *, why):
        super().__init__(f"{code}: {why}")
        self.code = code


class WithLock(Exception):
    def __init__(self):
        super().__init__("held")
        self.lock = threading.Lock()


def refuse(*_):
    raise RuntimeError("not here")


class Unloadable(Exception):
    def __reduce__(self):
        return refuse, ("x",)


class Speechless(Exception):
    def __str__(self):
        raise ValueError("no words")


@case
def needs():
    raise Needs(3, why="so")


@case
def with_lock():
    raise WithLock()


@case
def unloadable():
    raise Unloadable("hm")


@case
def speechless():
    raise Speechless()


@case
def group():
    raise ExceptionGroup("g", [ValueError(1), Needs(4, why="x")])


@case
def chained():
    try:
        1 / 0
    except ZeroDivisionError as error:
        problem = ValueError("outer")
        problem.add_note("a note of mine")
        raise problem from error


@case
def half_a_pair():
    raise ValueError("bad \udcff name")


@case
def markup():
    raise ValueError("[red]not markup[/red] [/x] \x1b[31m")


@case
def stop_iteration():
    raise StopIteration(3)


@case
def recursion():
    def down():
        return down()

    down()


@case
def memory():
    return bytearray(1 << 60)


if __name__ == "__main__":
    main()
