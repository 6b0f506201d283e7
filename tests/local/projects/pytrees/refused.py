import jax
from jax import tree_util

import kinetic


class Paths:
    def __init__(self, x):
        self.x = x


tree_util.register_pytree_with_keys(
    Paths,
    lambda it: (((tree_util.DictKey("x"), it.x),), None),
    lambda _, children: Paths(*children),
    lambda it: ((it.x,), None),
)


@kinetic.run(accelerator="cpu")
def leaves():
    return jax.tree.leaves(Paths(1))


try:
    leaves()
except kinetic.KineticError as error:
    print(type(error).__name__, error)
