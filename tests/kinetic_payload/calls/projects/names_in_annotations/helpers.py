import types


class Helper:
    pass


class Other:
    pass


missing = types.ModuleType("missing")


class Missing:
    pass


Missing.__module__ = "gone"
