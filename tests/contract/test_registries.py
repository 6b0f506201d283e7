from __future__ import annotations

from collections.abc import Iterator

import pytest
from registry_contract import RegistryContract

from kinetic_servers.registry import RegistryServer


class TestRegistryServer(RegistryContract):
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with RegistryServer() as self.server:
            yield

    def host(self) -> str:
        return self.server.host
