"""What runs where the function runs: fetch, verify, unpickle, call, report."""

__version__ = "0.1.0"
