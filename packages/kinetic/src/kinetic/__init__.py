"""Run a Python function on an accelerator."""

__version__ = "0.1.0"
