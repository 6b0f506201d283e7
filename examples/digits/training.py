"""A digits classifier in JAX, trained data-parallel over whatever devices it finds.

    python examples/digits/training.py
    KINETIC_BACKEND=gke python examples/digits/training.py --accelerator tpu-v5p-8 --image IMAGE

The first command trains on this machine, the second one on a cluster, here on two hosts. The image needs
jax and scikit-learn. The training saves checkpoints, and an attempt that follows a preemption resumes from the
last complete one.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass

from checkpointing import Checkpoints, outputs

import kinetic


@dataclass(frozen=True)
class Trained:
    """The result of a training run."""

    accuracy: float
    """Share of held-out digits that were classified correctly."""
    loss: float
    """Mean loss over the training data. A run that was interrupted ends with exactly the same."""
    attempt: int
    """The attempt that finished the training."""
    began_at: int
    """The epochs that earlier attempts had finished."""
    devices: int
    """Number of devices of all processes together."""
    processes: int
    seconds: float


def train(
    run: str | None = None,
    epochs: int = 60,
    batch: int = 256,
    rate: float = 0.5,
    seed: int = 0,
    save_every: int = 10,
    checkpoints: Checkpoints | None = None,
) -> Trained:
    """Train a small network on scikit-learn's 1,797 handwritten digits; test it on a quarter.

    With a name for the *run*, a later job over the same folder of outputs continues it.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental.multihost_utils import broadcast_one_to_all
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    started = time.perf_counter()
    attempt = int(os.environ["KINETIC_ATTEMPT"])
    if checkpoints is None:
        checkpoints = Checkpoints(outputs(), run or os.environ["KINETIC_JOB_ID"])
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

    def initial() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {
            "w1": rng.normal(0, (2 / 64) ** 0.5, (64, 64)).astype(np.float32),
            "b1": np.zeros(64, np.float32),
            "w2": rng.normal(0, (2 / 64) ** 0.5, (64, 10)).astype(np.float32),
            "b2": np.zeros(10, np.float32),
        }

    def logits(p, x):
        return jnp.maximum(x @ p["w1"] + p["b1"], 0) @ p["w2"] + p["b2"]

    def loss(p, x, y):
        return -jnp.mean(jax.nn.log_softmax(logits(p, x))[jnp.arange(y.size), y])

    @jax.jit
    def step(parameters, x, y):
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        new = jax.tree.map(lambda p, g: p - rate * g, parameters, gradients)
        return new, value

    # All hosts must begin at the same epoch, so the leader chooses the checkpoint for all of them.
    began_at = int(broadcast_one_to_all(np.int32(checkpoints.newest())))
    print(f"attempt {attempt} begins after epoch {began_at}", flush=True)
    arrays = checkpoints.load(began_at) if began_at else initial()
    parameters = {name: spread(array, same) for name, array in arrays.items()}

    for epoch in range(began_at, epochs):
        # The order depends on the epoch alone, wherever the attempt began.
        order = np.random.default_rng([seed, epoch]).permutation(len(x))
        for start in range(0, len(x) - batch + 1, batch):
            rows = order[start : start + batch]
            parameters, value = step(parameters, spread(x[rows], split), spread(y[rows], split))
        if (epoch + 1) % save_every == 0:
            arrays = {name: np.asarray(p) for name, p in parameters.items()}
            if jax.process_index() == 0:  # The parameters are the same on all hosts.
                checkpoints.save(epoch + 1, arrays)
            print(f"epoch {epoch + 1}: loss {float(value):.3f}", flush=True)

    trained = {name: np.asarray(p) for name, p in parameters.items()}
    guesses = np.argmax(np.asarray(logits(trained, x_test)), axis=1)
    return Trained(
        accuracy=float(np.mean(guesses == y_test)),
        loss=float(loss(trained, x, y)),
        attempt=attempt,
        began_at=began_at,
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


def main() -> None:
    """Train in one job, on the backend that KINETIC_BACKEND names, and print the result."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--accelerator", default="tpu-v5litepod-4")
    parser.add_argument("--image", help="The image of the pods, on a cluster.")
    parser.add_argument("--cpu", help="Processors of each host.")
    parser.add_argument("--memory", help="Memory of each host.")
    parser.add_argument("--output-dir", help="For checkpoints, such as gs://BUCKET/FOLDER.")
    parser.add_argument("--run", help="Continue the run of this name in that folder.")
    given = parser.parse_args()
    on_accelerator = kinetic.run(
        given.accelerator,
        container_image=given.image,
        cpu=given.cpu,
        memory=given.memory,
        output_dir=given.output_dir,
        # With JAX_PLATFORMS=cpu it can be tried without the accelerator.
        capture_env_vars=[name for name in os.environ if name.startswith("JAX_")],
    )
    print(on_accelerator(train)(given.run))


if __name__ == "__main__":
    os.environ.setdefault("KINETIC_BACKEND", "local")
    main()
