import functools

import jax


@jax.jit
def step(x):
    return x + 1


@functools.partial(jax.jit, static_argnames="n")
def power(x, n):
    return x**n


def main(x):
    return float(power(step(x), n=2))
