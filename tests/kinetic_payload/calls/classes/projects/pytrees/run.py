import abc
import functools

import equinox
import jax
import steps
from jax import tree_util
from shipping import compare, dump, ship

STEP = steps.step


@tree_util.register_pytree_node_class
class Node(abc.ABC):
    def __init__(self, x):
        self.x = x

    @abc.abstractmethod
    def name(self): ...
    def tree_flatten(self):
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@tree_util.register_pytree_node_class
class Leaf(Node):
    def name(self):
        return "leaf"


class Layer(equinox.Module):
    size: equinox.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, x): ...


def scale():
    return 2


class Double(Layer):
    size: int = 3
    factor: int = equinox.field(default_factory=lambda: scale(), converter=lambda x: scale() and x)

    def __call__(self, x):
        return self.factor * x


def flat(value, *, keys):
    return [(tree_util.GetAttrKey("a"), value.a) if keys else value.a], None


class Flat:
    def __call__(self, value, *, keys):
        return flat(value, keys=keys)


class Plain:
    def __init__(self, a):
        self.a = a


class Keyed(Plain):
    pass


class Called(Plain):
    pass


def register(cls, flatten, *more):
    made = lambda _, children: cls(*children)
    if more:
        tree_util.register_pytree_with_keys(cls, flatten, made, *more)
    else:
        tree_util.register_pytree_node(cls, flatten, made)


# Flattened by partials of one function, or of one object that can be called.
register(Plain, functools.partial(flat, keys=False))
register(Keyed, functools.partial(flat, keys=True), functools.partial(flat, keys=False))
register(Called, functools.partial(Flat(), keys=True), functools.partial(Flat(), keys=False))


@jax.jit
def step(x):
    return x + 1


@functools.partial(jax.jit, static_argnames="n")
def power(x, n):
    return x**n


def names(value):
    return [str(path) for path, _ in tree_util.tree_leaves_with_path(value)]


def tried(function, *arguments):
    try:
        return function(*arguments)
    except TypeError as error:
        return str(error).replace("\n", " ")


def facts():
    double = tree_util.tree_map(lambda x: x + 1, Double())
    leaf = tree_util.tree_map(lambda x: x + 1, Leaf(1))
    return {
        "leaf": (leaf.x, leaf.name(), isinstance(leaf, Node)),
        "module": (double.size, double(4), isinstance(double, Layer)),
        "abstract": (tried(Node, 1), tried(Layer)),
        "plain": names(Plain(1)),
        "jitted": (float(power(step(2.0), n=2)), steps.main(2.0), float(STEP(1.0))),
    }


if __name__ == "__main__":
    print(compare(facts), "facts", dump(steps.step).size < 120)
    for value in Keyed(1), Called(1):
        there = tried(ship, names, value)
        print("kept" if there == names(value) else there)
    print(tried(dump, names, {"mesh": [jax.devices()[0]]}))
