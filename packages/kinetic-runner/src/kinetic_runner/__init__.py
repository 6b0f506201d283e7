"""The runner, which executes one call on a worker: fetch, verify, unpickle, call, report."""

__version__ = "0.1.0"

WARM = "--warm"
"""A flag of the child: the store is a bucket, so import its client library early, which takes long."""

TEMPLATE = "--template"
"""A flag of the child: it runs no task, and forks children that do."""
