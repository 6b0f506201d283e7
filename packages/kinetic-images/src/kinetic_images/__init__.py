"""Dependencies become an image."""

__version__ = "0.1.0"
