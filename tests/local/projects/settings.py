import logging

import jax
import jax.numpy as jnp

import kinetic

jax.config.update("jax_enable_x64", True)
logging.basicConfig(level=logging.INFO, format="%(name)s says %(message)s")


@kinetic.run(accelerator="cpu")
def total():
    logging.getLogger("mine").info("counting")
    return (1 / jnp.arange(1, 2_000_001)).sum().item()


if __name__ == "__main__":
    job = total.run_async()
    print(job.result(cleanup=False), "mine says counting" in job.logs())
