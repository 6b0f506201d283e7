import os
import subprocess
import sys
import threading
import time

from cases import case, main

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
with open("pid", "w") as stream: stream.write(str(os.getpid()))
time.sleep(300)
"""


@case
def many():
    for number in range(100_000):
        print(number)


@case
def bytes_of_any_kind():
    sys.stdout.buffer.write(bytes(range(256)) + b"\n")
    print("é✓😀 \u2028 \x85 \x0c", "a\udcff".encode(errors="surrogateescape"))
    print("x" * 3_000_000)
    for i in range(5):
        print(f"\r{i * 25}%", end="", flush=True)
    sys.stdout.write("\nno end")


@case
def below_python():
    import ctypes

    ctypes.CDLL(None).puts(b"from C")
    print("from Python")
    os.write(1, b"from the system\n")
    subprocess.run("echo out; echo err >&2", shell=True)


@case
def closed():
    sys.stdout.close()
    sys.stderr.close()
    raise ValueError("x")


@case
def descriptors_closed():
    os.close(1)
    os.close(2)
    return 1


@case
def all_taken_away():
    import shutil

    here = os.getcwd()
    os.chdir("/")
    shutil.rmtree(here)
    os.environ.clear()
    sys.stdout = sys.stderr = None
    return 1


@case
def reads_input():
    return input("? ")


@case
def left_running():
    threading.Thread(target=time.sleep, args=[300]).start()
    child = subprocess.Popen(["sleep", "300"]).pid
    subprocess.run([sys.executable, "-c", DAEMON])
    while not os.path.exists("pid") or not open("pid").read():
        time.sleep(0.01)
    code = "import time\nwhile True: print('spam', flush=True); time.sleep(0.001)"
    chatterbox = subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid
    return [os.getpid(), child, chatterbox, int(open("pid").read())]


@case
def fork():
    if os.fork() == 0:
        return -1
    os.wait()
    return os.getpid()


@case
def pool():
    import multiprocessing

    pool = multiprocessing.get_context("fork").Pool(2)
    return pool.map(abs, [-1, -2])


if __name__ == "__main__":
    main()
