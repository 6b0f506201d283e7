"""Pytrees that are flattened by partials of one function, or of one object that can be called."""

from functools import partial

from jax import tree_util
from shipping import ship


def flat(value, *, keys):
    return [(tree_util.GetAttrKey("a"), value.a) if keys else value.a], None


class Keyed:
    def __init__(self, a):
        self.a = a


class Plain:
    def __init__(self, a):
        self.a = a


class Called:
    def __init__(self, a):
        self.a = a


class Flat:
    def __call__(self, value, *, keys):
        return flat(value, keys=keys)


def register(cls, flatten, *more):
    made = lambda _, children: cls(*children)
    if more:
        tree_util.register_pytree_with_keys(cls, flatten, made, *more)
    else:
        tree_util.register_pytree_node(cls, flatten, made)


register(Keyed, partial(flat, keys=True), partial(flat, keys=False))
register(Plain, partial(flat, keys=False))
register(Called, partial(Flat(), keys=True), partial(Flat(), keys=False))


def try_to_ship(value):
    def names():
        return tree_util.tree_leaves_with_path(value)[0][0]

    try:
        print(ship(names) == names() and type(value).__name__)
    except Exception as error:
        print(str(error).splitlines()[0])


if __name__ == "__main__":
    try_to_ship(Plain(1))
    try_to_ship(Keyed(1))
    try_to_ship(Called(1))
