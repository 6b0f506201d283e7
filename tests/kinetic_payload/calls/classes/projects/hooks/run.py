import dataclasses

import hooks

LIMIT = 7


class Kind:
    pass


def outer(step):
    class Robot(hooks.Actor):
        width = hooks.Column(int)
        kind = hooks.Column(Kind)

        class Options:
            x = 1

        @hooks.action("go")
        def run(self, x: int, y: "str" = "y", *, z=(3,)):
            return x + LIMIT + step, y, z

        @hooks.action("stop")
        def stop(self):
            return super().stop(), Robot

    return Robot


Robot = outer(1)


@dataclasses.dataclass
class Plain(hooks.Actor):
    plain: int = 3
    items: list = dataclasses.field(default_factory=list)

    def run(self, x):
        return x, self.plain


class Table(metaclass=hooks.Meta):
    width = hooks.Column(int)

    def same(self):
        return Table


def facts():
    return {
        name: hooks.SEEN.get(name)
        for name in (
            Robot.__qualname__,
            Plain.__qualname__,
            Table.__qualname__,
            ("outer.<locals>.Robot", "kind"),
            ("Table", "width"),
        )
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
