import abc

import equinox
import jax


@jax.tree_util.register_pytree_node_class
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


@jax.tree_util.register_pytree_node_class
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


def refused(make):
    try:
        return make()
    except TypeError as error:
        return str(error)


def facts():
    double = jax.tree_util.tree_map(lambda x: x + 1, Double())
    leaf = jax.tree_util.tree_map(lambda x: x + 1, Leaf(1))
    return {
        "leaf": (leaf.x, leaf.name(), isinstance(leaf, Node)),
        "module": (double.size, double(4), isinstance(double, Layer)),
        "abstract": (refused(lambda: Node(1)), refused(Layer)),
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts), "facts")
