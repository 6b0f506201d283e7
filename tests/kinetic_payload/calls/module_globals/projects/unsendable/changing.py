import lib
from shipping import ship

lib.PARTS.update(n=2)
lib.TABLE = lib.TABLE + b"x"
lib.NAMES.append("x")
try:
    print(ship(lib.read))
except Exception as error:
    print(error)
lib.PARTS = lib.PARTS["n"]
lib.PARTS = {"n": lib.PARTS}
print(ship(lib.read))
