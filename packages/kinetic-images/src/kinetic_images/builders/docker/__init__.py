"""A local docker engine, through its command line."""

from kinetic_images.builders.docker.builder import DockerBuilder

__all__ = ["DockerBuilder"]
