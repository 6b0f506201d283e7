"""A project's dependencies: find them, lock them for a machine, make a container image of them."""

__version__ = "0.1.0"
