import os
import threading

from shipping import Data

RATE, NAMES, LOCK, DATA = 1, ["a"], threading.Lock(), Data("digits")


class Base:
    depth = 1


class Settings(Base):
    lr, table = 1, {}
    made = dict(a=1)
    folder = os.environ.get("NO_SUCH_NAME", "data")

    def method(self):
        return self.lr


def rate():
    return RATE
