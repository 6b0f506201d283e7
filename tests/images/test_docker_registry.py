from __future__ import annotations

import pytest

from kinetic_images.testing.registry import RegistryContract


class TestDockerRegistry(RegistryContract):
    @pytest.fixture(autouse=True)
    def _server(self, docker_registry: str) -> None:
        self.address = docker_registry

    def host(self) -> str:
        return self.address
