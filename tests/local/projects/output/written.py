import os
import subprocess
import sys

from cases import case, main


@case
def many():
    for number in range(100_000):
        print(number)


@case
def binary():
    sys.stdout.buffer.write(bytes(range(256)) + b"\n")


@case
def no_end():
    sys.stdout.write("no newline")


@case
def no_end_and_an_error():
    sys.stdout.write("no newline")
    raise ValueError("after it")


@case
def logging_module():
    import logging

    logging.basicConfig(level=logging.INFO)
    logging.info("[info] hello [/x]")


@case
def bar():
    for i in range(5):
        print(f"\r{i * 25}%", end="", flush=True)
    print()


@case
def below_python():
    import ctypes

    ctypes.CDLL(None).puts(b"from C")
    print("from Python")
    os.write(1, b"from the system\n")


@case
def from_a_child():
    subprocess.run("echo out; echo err >&2", shell=True)


@case
def one_long_line():
    print("x" * 3_000_000)


@case
def unicode():
    print("é✓😀 \u2028 \x85 \x0c", "a\udcff".encode(errors="surrogateescape"))


if __name__ == "__main__":
    main()
