"""The command `kinetic`."""

__version__ = "0.1.0"
