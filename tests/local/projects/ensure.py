import os
import sys
import threading
from pathlib import Path

from kinetic.home.environments import ensure_environment

root, home, path = sys.argv[1:]


def report(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())


def ensure():
    made = ensure_environment(
        Path(root),
        home=Path(home),
        environ={"PATH": path, "HOME": home, "UV_OFFLINE": "1"},
        report=report,
    )
    report("python", made.python)


threads = [threading.Thread(target=ensure) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
