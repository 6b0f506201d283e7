import threading

import lib
from shipping import WORKSPACE, dump, ship

vars(lib)["MADE"] = threading.Lock()
for text in dump(lib.make()).warnings:
    print(text)
print(ship(lib.make()))
print((WORKSPACE / "warnings.txt").read_text())
