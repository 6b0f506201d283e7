from shipping import ship


class Needs(Exception):
    def __init__(self, code, *, why):
        super().__init__(f"{code} because {why}")
        self.code = code


class Missing(OSError):
    def __init__(self, path):
        super().__init__(2, "no such run", path)


class Hinted(ValueError, KeyError):
    __slots__ = ("hint", "unset")

    def __init__(self, code, hint=None):
        super().__init__(code)
        self.hint = hint


class Restored(Exception):
    def __init__(self, code, why):
        super().__init__(f"{code} because {why}")
        self.why = why

    def __setstate__(self, state):
        super().__setstate__(state | {"why": self.args[0][-1]})


class Both(ExceptionGroup):
    def __new__(cls, code, errors):
        return super().__new__(cls, f"code {code}", errors)

    def __init__(self, code, errors):
        self.code = code


def fail(error):
    raise error


made = [Needs(3, why="w"), Missing("/x"), Both(4, [Needs(5, why="v")])]
made += [Hinted(6), Restored(7, "r")]
back = ship(lambda: list(made))
try:
    ship(fail, ExceptionGroup("all", made))
except ExceptionGroup as group:
    raised = group.exceptions
for error, *others in zip(made, back, raised, strict=True):
    for one in others:
        assert (type(one), str(one)) == (type(error), str(error)), one
        assert repr((one.args, vars(one))) == repr((error.args, vars(error))), one
print(back[0].code, back[1].filename, back[2].exceptions[0].code)
print(back[3].hint, hasattr(back[3], "unset"))
