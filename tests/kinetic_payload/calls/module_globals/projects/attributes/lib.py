import pack
import pack.config as config


def make():
    def inner():
        return config.RATE, pack.config.NAMES, config.Settings.lr, config.DATA

    return inner
