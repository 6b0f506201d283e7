from config import CFG, NAMES, settings


def build():
    return CFG["lr"], NAMES, settings.rate
