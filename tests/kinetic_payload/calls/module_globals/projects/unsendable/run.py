import threading

import lib
from shipping import ship

for name, value in ("CLIENT", threading.Lock()), ("TABLE", lib.TABLE + b"x"):
    before, lib.__dict__[name] = lib.__dict__[name], value
    try:
        print(ship(lib.read))
    except Exception as error:
        print(error)
    lib.__dict__[name] = before
