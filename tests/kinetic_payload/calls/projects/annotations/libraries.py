from typing import TYPE_CHECKING

import attrs
import equinox
import flax.struct
import jax
import jax.numpy as jnp
import msgspec
import pydantic
from shown import all_of

if TYPE_CHECKING:
    from heavy import Only


class Model(pydantic.BaseModel):
    x: int
    y: list[Model] = []
    z: Other | None = None

    def m(self, a: Only) -> Model:
        return self


class Other(pydantic.BaseModel):
    a: str = "a"


Model.model_rebuild()


@attrs.define
class Defined:
    x: int
    y: Later | None = None
    z: list[Defined] = attrs.field(factory=list)

    def m(self, a: Only):
        return self.x


@attrs.frozen
class Frozen:
    x: Only = 3


class Struct(msgspec.Struct):
    x: int
    y: list[Struct] = []
    z: Later | None = None


class Module(equinox.Module):
    w: jax.Array
    n: int = equinox.field(static=True, default=3)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x * self.w + self.n


class Node(flax.struct.PyTreeNode):
    w: jax.Array
    n: int = flax.struct.field(pytree_node=False, default=2)

    def m(self, a: Later) -> Node:
        return self


class Later:
    pass


def facts():
    module = Module(jnp.ones(2))
    return all_of(Model, Other, Defined, Frozen, Struct, Module, Node) | {
        "shown": [
            repr(one) for one in (Model(x=1, y=[{"x": 2}], z={}), Defined(1), Frozen(), Struct(1))
        ],
        "called": [Model(x=1).m(3).x, Defined(1).m(2), str(module(jnp.ones(2)))],
        "leaves": [str(jax.tree.leaves(module)), str(jax.tree.leaves(Node(jnp.ones(2))))],
    }


if __name__ == "__main__":
    from shipping import compare

    print(compare(facts) > 10)
