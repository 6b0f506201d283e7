import inspect

SEEN = {}


def action(name):
    def mark(function):
        function.action = name
        return function

    return mark


class Column:
    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        SEEN[owner.__qualname__, name] = self.kind.__name__


class Actor:
    def __init_subclass__(cls):
        SEEN[cls.__qualname__] = {
            "actions": [one.action for one in vars(cls).values() if hasattr(one, "action")],
            "columns": [name for name, one in vars(cls).items() if isinstance(one, Column)],
            "plain": cls.__dict__.get("plain"),
            "nested": [one.__name__ for one in vars(cls).values() if isinstance(one, type)],
            "signature": str(inspect.signature(cls.run)),
            "run": cls().run(1),
        }


class Meta(type):
    def __new__(meta, name, bases, body):
        SEEN[name] = [key for key, one in body.items() if isinstance(one, Column)]
        return super().__new__(meta, name, bases, body)
