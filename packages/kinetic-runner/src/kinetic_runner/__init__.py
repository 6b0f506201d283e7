"""What runs where the function runs: fetch, verify, unpickle, call, report."""

__version__ = "0.1.0"

WARM = "--warm"
"""On the command line of the child: its store is a bucket, whose client takes long to import."""
