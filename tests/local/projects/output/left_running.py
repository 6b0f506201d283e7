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
def thread():
    threading.Thread(target=time.sleep, args=[300]).start()
    return os.getpid()


@case
def child():
    return subprocess.Popen(["sleep", "300"]).pid


@case
def daemon():
    subprocess.run([sys.executable, "-c", DAEMON])
    while not os.path.exists("pid") or not open("pid").read():
        time.sleep(0.01)
    return int(open("pid").read())


@case
def chatterbox():
    code = "while True: print('spam', flush=True)"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid


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
