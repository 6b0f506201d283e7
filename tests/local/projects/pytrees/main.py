import dataclasses
import functools
import json
import re
import sys
from typing import Any, Callable, Generic, TypeVar

import attrs
import equinox as eqx
import flax.linen as nn
import flax.serialization
import flax.struct
import jax
import jax.numpy as jnp
import msgspec
import pydantic
from flax import nnx
from flax.training.train_state import TrainState
from jax import tree_util

import kinetic

T = TypeVar("T")


class Encoder(eqx.Module):
    weight: jax.Array
    bias: jax.Array | None = None
    scale: float = eqx.field(default=2.0, static=True)
    act: Callable = eqx.field(default=jax.nn.relu, static=True)
    name: str = eqx.field(static=True, default_factory=lambda: "enc", kw_only=True)

    def __call__(self, x):
        return self.act(self.weight * x * self.scale) + helper(self)

    def model(self):
        return Model(self, [self])


class Base(eqx.Module):
    made: eqx.AbstractVar[int]

    def area(self):
        raise NotImplementedError


class Model(Base):
    encoder: Encoder
    parts: list[Encoder]
    made: int = eqx.field(init=False, static=True)

    def __post_init__(self):
        self.made = len(self.parts)

    @eqx.filter_jit
    def __call__(self, x):
        return sum(part(x) for part in self.parts) + self.encoder(x)

    @property
    def size(self):
        return sum(leaf.size for leaf in jax.tree.leaves(self))

    @classmethod
    def build(cls, n):
        encoder = Encoder(jnp.ones(n), jnp.zeros(n))
        return cls(encoder, [encoder] * n)


class Custom(eqx.Module, Generic[T]):
    x: jax.Array
    y: int = eqx.field(converter=float)

    def __init__(self, x):
        self.x, self.y = jnp.asarray(x), 3

    def __check_init__(self):
        if self.x.ndim != 1:
            raise ValueError("one axis")


class Abstract(eqx.Module, is_abstract=True):
    pass


def helper(module):
    return 0.0 if isinstance(module, Encoder) else 1.0


class Counted(eqx.Module):
    seen = []
    x: float = 1.0

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        Counted.seen.append(cls.__name__)


class Below(Counted):
    y: float = 2.0


@flax.struct.dataclass
class Params:
    w: Any
    lr: float = flax.struct.field(pytree_node=False, default=0.1)
    extra: dict = dataclasses.field(default_factory=dict)

    def norm(self):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(self))


class Step(flax.struct.PyTreeNode):
    params: Params
    count: int = 0
    tag: str = flax.struct.field(pytree_node=False, default="t")

    def next(self):
        return self.replace(count=self.count + 1)


class State(TrainState):
    batch_stats: Any = None


@tree_util.register_pytree_node_class
class Registered:
    def __init__(self, x, meta="m"):
        self.x, self.meta = x, meta

    def tree_flatten(self):
        return (self.x,), self.meta

    @classmethod
    def tree_unflatten(cls, meta, children):
        return cls(*children, meta)


@tree_util.register_pytree_with_keys_class
class Keyed:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten_with_keys(self):
        return ((tree_util.GetAttrKey("a"), self.a), (tree_util.GetAttrKey("b"), self.b)), None

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    x: Any
    y: Any
    mode: str = dataclasses.field(default="fast", metadata={"static": True})


class Plain:
    def __init__(self, x, y):
        self.x, self.y = x, y


tree_util.register_pytree_node(
    Plain, lambda plain: ((plain.x, plain.y), None), lambda _, children: Plain(*children)
)


class Everything:
    def __init__(self, **values):
        vars(self).update(values)


tree_util.register_pytree_node(
    Everything,
    lambda it: (list(vars(it).values()), tuple(vars(it))),
    lambda names, values: Everything(**dict(zip(names, values))),
)


class Paths:
    def __init__(self, x):
        self.x = x


tree_util.register_pytree_with_keys(
    Paths,
    lambda it: (((tree_util.DictKey("x"), it.x),), None),
    lambda _, children: Paths(*children),
)


@tree_util.register_static
class Static:
    def __eq__(self, other):
        return isinstance(other, Static)

    def __hash__(self):
        return 1


class Unregistered:
    x = 1.0


class Weights(tuple):
    pass


class Dense(nn.Module):
    features: int
    kernel: Callable = nn.initializers.ones
    sizes: list = dataclasses.field(default_factory=list)

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.features, kernel_init=self.kernel)(x)


class Setup(nn.Module):
    def setup(self):
        self.dense = Dense(2)

    def __call__(self, x):
        return self.dense(x)


class Linear(nnx.Module):
    def __init__(self, n, rngs):
        self.w = nnx.Param(jnp.ones((n, n)))
        self.n = n

    def __call__(self, x):
        return x @ self.w


class Opaque(nnx.Module, pytree=False):
    def __init__(self):
        self.x = jnp.ones(2)


class Annotated(nnx.Module):
    x: jax.Array = nnx.data()
    y: int = nnx.static(default=3)

    def __init__(self):
        self.x, self.y = jnp.ones(3), 4


@jax.custom_vjp
def clipped(x, limit):
    return x * limit


clipped.defvjp(
    lambda x, limit: (clipped(x, limit), limit), lambda limit, g: (jnp.clip(g, -1, 1) * limit, None)
)


@jax.custom_jvp
def softened(x):
    return jnp.log1p(jnp.exp(x))


@softened.defjvp
def _(primals, tangents):
    return softened(*primals), 10.0 * tangents[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def scaled(x, by):
    return x * by


scaled.defvjp(lambda x, by: (x * by, None), lambda by, _, g: (100.0 * by * g,))


class Item(msgspec.Struct, frozen=True, tag="it", rename={"size": "Size"}, omit_defaults=True):
    name: str
    size: int = 3
    tags: list[str] = []
    parts: "list[Item]" = msgspec.field(default_factory=list)

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("negative")

    def grown(self):
        return Item(self.name, self.size + 1)


class Special(Item, kw_only=True, tag="special", order=True):
    level: int
    price: float = 1.5


class User(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str
    age: int = pydantic.Field(default=3, ge=0)
    friends: "list[User]" = []
    _secret: str = "s"

    @pydantic.field_validator("name")
    @classmethod
    def check(cls, value):
        if value == "nobody":
            raise ValueError("nobody")
        return value.title()

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return 2 * self.age


class Admin(User):
    level: int = 1

    @pydantic.model_validator(mode="after")
    def whole(self):
        if self.level > 9:
            raise ValueError("too high")
        return self


class Listed(pydantic.BaseModel, Generic[T]):
    items: list[T]


@attrs.define
class Car:
    wheels: int = attrs.field(default=4, validator=attrs.validators.instance_of(int))
    parts: list = attrs.Factory(list)

    def __attrs_post_init__(self):
        self.parts.append(__class__ is Car)


@attrs.frozen(kw_only=True)
class Van(Car):
    load: float = attrs.field(converter=float)


@attrs.define(slots=False)
class Loose:
    x: int = 1


def tried(function, *arguments, **keywords):
    try:
        return str(function(*arguments, **keywords))
    except Exception as error:
        return type(error).__name__ + ": " + str(error)


def tree(value):
    leaves, shape = jax.tree.flatten(value)
    again = jax.tree.unflatten(shape, leaves)
    paths = [tree_util.keystr(path) for path, _ in tree_util.tree_flatten_with_path(value)[0]]
    return [str(leaf) for leaf in leaves], paths, str(shape), type(again).__name__


def facts(model, state, car, item, user):
    found = {}
    encoder = Encoder(jnp.arange(3.0))
    found["passed"] = tree(model), float(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(model)))
    found["equinox"] = (
        tree(encoder),
        tree(encoder.model()),
        tree(Model.build(2)),
        str(Model.build(2)),
    )
    found["calls"] = str(model(2.0)), str(encoder(3.0)), model.size, model.made, str(Encoder)
    found["gradient"] = (
        tree(jax.grad(lambda m: m(1.0).sum())(encoder)),
        tree(eqx.filter_grad(lambda m: m(1.0).sum())(model)),
    )
    found["frozen"] = (
        tried(setattr, encoder, "bias", 1),
        tried(Base),
        tried(Abstract),
        tried(Encoder),
    )
    found["custom"] = tree(Custom([1.0, 2.0])), tried(Custom, 1.0), Custom([1.0]).y
    found["equal"] = bool(eqx.tree_equal(model, Model.build(3)))
    found["counted"] = Counted.seen, tree(Below(y=5.0))
    found["fields"] = [
        [f.name, f.init, f.kw_only, f.default is dataclasses.MISSING]
        for f in dataclasses.fields(Encoder)
    ]
    found["updated"] = tree(eqx.tree_at(lambda m: m.encoder.weight, model, jnp.ones(1)))
    found["vmap"] = tree(jax.vmap(lambda n: Encoder(jnp.ones(2) * n))(jnp.arange(2.0)))
    found["bound"] = tree(eqx.filter_jit(lambda call: call(2.0))(model.encoder.__call__))
    found["params"] = (
        tree(Params(jnp.ones(2))),
        float(Params(jnp.ones(2)).norm()),
        tree(Params(1).replace(w=2)),
        tried(setattr, Params(1), "w", 2),
    )
    found["step"] = (
        tree(Step(Params(1.0)).next()),
        Step(Params(1)).tag,
        tried(Step),
        str(Step(Params(1.0))),
    )
    found["state"] = (
        tree(state),
        tree(State.create(apply_fn=None, params={"w": 1.0}, tx=sgd(), batch_stats=2.0)),
    )
    found["saved"] = (
        str(flax.serialization.to_state_dict(Step(Params(1.0)))),
        str(flax.serialization.to_state_dict(Params(3.0))),
    )
    found["restored"] = str(
        flax.serialization.from_bytes(Params(0.0), flax.serialization.to_bytes(Params(3.0)))
    )
    for value in (
        Registered(1.0),
        Keyed(1, 2),
        Data(1, 2),
        Plain(3, 4),
        Everything(p=1, q=2),
        Paths(1),
        Static(),
        Weights((1,)),
    ):
        found["registered " + type(value).__name__] = (
            tree(value) if type(value).__name__ != "Static" else len(jax.tree.leaves(value))
        )
    found["leaf"] = len(jax.tree.leaves(Unregistered())), tree_util.all_leaves([Unregistered()])
    found["jit"] = tree(
        jax.jit(lambda data: dataclasses.replace(data, x=data.x + 1))(Data(1.0, 2.0))
    )

    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Inside:
        x: Any

    class Made(eqx.Module):
        x: Any
        encoder: Encoder = None

    found["inside"] = tree(Inside(1)), tree(Made(1, encoder))
    x = jnp.ones((1, 3))
    found["linen"] = (
        tree(Dense(2).init(jax.random.key(0), x)),
        str(Dense(2)),
        tried(Dense),
        tree(Setup().init(jax.random.key(0), x)),
    )
    found["cloned"] = str(Dense(2).clone(features=5)), Dense(2) == Dense(2), Dense(2).sizes
    linear = Linear(2, nnx.Rngs(0))
    found["nnx"] = (
        str(linear(jnp.ones(2))),
        tree(nnx.state(linear)),
        tree(nnx.split(linear)[1]),
        tree_util.all_leaves([linear]),
        tree_util.all_leaves([Opaque()]),
    )
    found["nnx grad"] = (
        tree(nnx.grad(lambda m: m(jnp.ones(2)).sum())(linear)),
        len(jax.tree.leaves(Annotated())),
        len(jax.tree.leaves(linear)),
    )
    found["vjp"] = (
        float(jax.grad(clipped)(2.0, 5.0)),
        float(jax.grad(softened)(1.0)),
        float(jax.grad(scaled)(1.0, 2.0)),
    )
    found["struct"] = (
        str(item),
        msgspec.json.encode(item).decode(),
        str(item.grown()),
        tried(setattr, item, "size", 1),
        tried(Item, "x", -1),
    )
    found["decoded"] = (
        str(
            msgspec.json.decode(
                b'{"type":"it","name":"a","Size":7,"parts":[{"type":"it","name":"b"}]}', type=Item
            )
        ),
        tried(msgspec.json.decode, b'{"type":"it"}', type=Item),
    )
    found["special"] = (
        str(Special("s", level=3)),
        tried(Special, "s", 1),
        Special("a", level=1) < Special("b", level=1),
        msgspec.json.encode(Special("s", level=3)).decode(),
    )
    found["config"] = (
        [
            str(getattr(cls.__struct_config__, name))
            for cls in (Item, Special)
            for name in dir(cls.__struct_config__)
            if name[0] != "_"
        ],
        Special.__struct_fields__,
    )
    found["tags"] = Item("a").tags is not Item("b").tags, Item.__match_args__
    found["pydantic"] = (
        str(user),
        user.model_dump_json(),
        tried(User, name="nobody"),
        tried(User, name="a", age=-1),
        User(name="x", friends=[{"name": "y"}]).model_dump(),
    )
    found["schema"] = (
        User.model_json_schema(),
        Admin(name="b", level="4").model_dump(),
        tried(Admin, name="b", level=10),
        tried(setattr, user, "age", 1),
    )
    found["generic"] = (
        str(Listed[int](items=["1"])),
        tried(Listed[int], items=["x"]),
        user._secret,
        str(User.model_fields),
    )

    class Sub(User):
        more: int = 3

    found["submodel"] = str(Sub(name="q")), list(Sub.model_fields)
    found["attrs"] = (
        str(car),
        tried(Car, wheels="x"),
        str(Van(load="3")),
        tried(setattr, Van(load=1), "load", 2),
        hasattr(car, "__dict__"),
        str(Loose()),
    )
    found["evolve"] = (
        str(attrs.evolve(car, wheels=6)),
        [field.name for field in attrs.fields(Van)],
        attrs.asdict(Van(load=1)),
    )
    return found


def sgd():
    import optax

    return optax.sgd(0.1)


def arguments():
    state = State.create(
        apply_fn=None, params={"w": jnp.ones(2)}, tx=sgd(), batch_stats=jnp.zeros(1)
    )
    return (
        Model.build(3),
        state,
        Car(),
        Item("one", 4),
        User(name="ann", friends=[User(name="bob")]),
    )


def made_inside():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Registered:
        x: Any

    class Made(eqx.Module):
        x: Any
        y: int = eqx.field(static=True, default=3)

    class Node(flax.struct.PyTreeNode):
        x: Any

    return Registered(1.0), Made(2.0), Node(3.0)


@kinetic.run(accelerator="cpu")
def job(*arguments):
    return facts(*arguments), Encoder(jnp.ones(1)), Params(1.0), made_inside()


class Refused:
    def __init__(self, x):
        self.x = x


tree_util.register_pytree_with_keys(
    Refused,
    lambda it: (((tree_util.DictKey("x"), it.x),), None),
    lambda _, children: Refused(*children),
    lambda it: ((it.x,), None),
)


@kinetic.run(accelerator="cpu")
def leaves():
    return jax.tree.leaves(Refused(1))


def refusal():
    try:
        leaves()
    except kinetic.KineticError as error:
        return str(error)


def lines(found, encoder, params, made):
    found["home"] = type(encoder) is Encoder, tree(encoder), type(params) is Params, tree(params)
    found["made"] = [tree(value) for value in made]
    for name, fact in found.items():
        yield f"{name} " + re.sub(" at 0x[0-9a-f]+", "", json.dumps(fact))


if __name__ == "__main__":
    here = facts(*arguments()), Encoder(jnp.ones(1)), Params(1.0), made_inside()
    there = job(*arguments())
    print(json.dumps([*(list(lines(*found)) for found in (here, there)), refusal()]))
