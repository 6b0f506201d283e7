"""Cloud Build: images are built on Google's machines."""

from kinetic_images.builders.cloud_build.builder import CloudBuildBuilder
from kinetic_images.builders.cloud_build.settings import CloudBuildSettings, RegistryLogin

__all__ = ["CloudBuildBuilder", "CloudBuildSettings", "RegistryLogin"]
