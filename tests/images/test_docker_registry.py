from __future__ import annotations

import pytest
from registry_contract import RegistryContract


class TestDockerRegistry(RegistryContract):
    @pytest.fixture(autouse=True)
    def _server(self, docker_registry: str) -> None:
        self.address = docker_registry

    def host(self) -> str:
        return self.address
