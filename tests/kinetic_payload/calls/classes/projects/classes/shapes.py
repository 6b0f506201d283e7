import abc

REGISTRY, BODIES = {}, {}


class Registered:
    key = None

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        REGISTRY[cls.key] = cls
        BODIES[cls.key] = sorted(name for name in vars(cls) if name[0] != "_")


TONES = []


class Keyed:
    def __init_subclass__(cls, *, key, tone="soft", times=1):
        REGISTRY[key] = cls
        TONES.append(tone)
        cls.tone, cls.times = tone, times


class Shape(abc.ABC):
    pass
