"""A project's dependencies: find them, compute their digest, pass them to uv. No images are built yet."""

__version__ = "0.1.0"
