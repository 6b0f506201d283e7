import os

batch, cfg, width = 12, None, int(os.environ.get("NO_SUCH_NAME", 3))


class Config:
    lr = 1

    def __init__(self):
        self.depth = 1


CONFIG = Config()


def train():
    assert type(current) is Proxy
    return batch, cfg, width, Config.lr, CONFIG.depth


def set_width(value):
    global width
    width = value


class Trainer:
    @property
    def batch(self):
        return batch

    def train(self):
        return train()


def nested():
    return lambda: train()


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("there is no object yet")

    __dict__ = __class__


current = Proxy()
