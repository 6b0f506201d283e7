"""A digits classifier in JAX, trained data-parallel over whatever devices it finds."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass

import kinetic


@dataclass(frozen=True)
class Trained:
    """The result of a training run."""

    accuracy: float
    """Share of held-out digits that were classified correctly."""
    devices: int
    """Number of devices of all processes together."""
    processes: int
    seconds: float


def train(epochs: int = 60, batch: int = 256, rate: float = 0.5, seed: int = 0) -> Trained:
    """Train a small network on scikit-learn's 1,797 handwritten digits; test it on a quarter."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    started = time.perf_counter()
    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        (images / 16.0).astype(np.float32), labels, test_size=0.25, random_state=seed
    )

    # One mesh over every device of every process: each step's batch is split between them, the
    # parameters are the same everywhere, and XLA sums the gradients across devices and hosts.
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    split = NamedSharding(mesh, PartitionSpec("batch"))
    same = NamedSharding(mesh, PartitionSpec())

    def spread(array: np.ndarray, how: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(array.shape, how, lambda index: array[index])

    rng = np.random.default_rng(seed)
    sizes = [64, 64, 10]
    initial = [
        (
            rng.normal(0, (2 / m) ** 0.5, (m, n)).astype(np.float32),
            np.zeros(n, np.float32),
        )
        for m, n in itertools.pairwise(sizes)
    ]
    parameters = [(spread(w, same), spread(b, same)) for w, b in initial]

    def logits(parameters, x):
        (w1, b1), (w2, b2) = parameters
        return jnp.maximum(x @ w1 + b1, 0) @ w2 + b2

    def loss(parameters, x, y):
        return -jnp.mean(jax.nn.log_softmax(logits(parameters, x))[jnp.arange(y.size), y])

    @jax.jit
    def step(parameters, x, y):
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        new = jax.tree.map(lambda p, g: p - rate * g, parameters, gradients)
        return new, value

    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - batch + 1, batch):
            rows = order[start : start + batch]
            parameters, value = step(parameters, spread(x[rows], split), spread(y[rows], split))
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1}: loss {float(value):.3f}")

    w = jax.tree.map(np.asarray, parameters)
    guesses = np.argmax(np.maximum(x_test @ w[0][0] + w[0][1], 0) @ w[1][0] + w[1][1], axis=1)
    return Trained(
        accuracy=float(np.mean(guesses == y_test)),
        devices=jax.device_count(),
        processes=jax.process_count(),
        seconds=time.perf_counter() - started,
    )


@kinetic.run(accelerator="tpu-v5litepod-4")
def train_on_four_chips() -> Trained:
    """Train on one host with four chips; on a laptop, on four virtual devices."""
    return train()


@kinetic.run(accelerator="tpu-v5litepod-16", backend="local-pathways")
def train_as_one_controller() -> Trained:
    """Train on four hosts of four chips that one process controls, as under Pathways."""
    return train()


@kinetic.run(accelerator="tpu-v4-8", backend="local-gke")
def train_as_several_processes() -> Trained:
    """Train on two hosts of four chips, one process each, joined by jax.distributed."""
    return train()


@kinetic.run(accelerator="cpu")
def where_am_i() -> str:
    """Return which job this is, for the detached run."""
    return f"job {os.environ['KINETIC_JOB_ID']}, attempt {os.environ['KINETIC_ATTEMPT']}"
