import threading

CLIENT, MADE, TABLE, PARTS = None, int("5"), bytes(3_000_000), {"lock": threading.Lock(), "n": 1}
NAMES = [str(i) * 10 for i in range(200_000)]
LOCK = threading.Lock()


def read():
    with LOCK:
        return CLIENT, MADE, len(TABLE), PARTS["n"], len(NAMES)


def make():
    return lambda: read() + (PARTS["n"], len(NAMES), MADE)
