"""The runner, which executes one call on a worker: fetch, verify, unpickle, call, report."""

__version__ = "0.1.0"

WARM = "--warm"
"""A flag of the child: its store is a bucket, whose client it imports early, as that takes long."""
