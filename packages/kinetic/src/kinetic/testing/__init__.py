"""For tests of backends: `BackendContract`, which every backend passes.

```python
class TestMyBackend(BackendContract):
    def make_client(self, folder: Path) -> RegisteredClient:
        return RegisteredClient(backend="mine", accelerator="cpu", container_image="…")

    def refusing_starts(self, client: RegisteredClient) -> AbstractContextManager[object]: ...
```

See `docs/backends.md`.
"""

from kinetic.testing.clients import (
    RegisteredClient,
    eventually,
    users_project,
)
from kinetic.testing.contract import (
    BackendAttempts,
    BackendBasics,
    BackendBatches,
    BackendContract,
    BackendHosts,
    BackendLife,
    BackendLogs,
    BackendPorts,
    BackendQueue,
    BackendTrust,
    BackendValues,
)

__all__ = [
    "BackendAttempts",
    "BackendBasics",
    "BackendBatches",
    "BackendContract",
    "BackendHosts",
    "BackendLife",
    "BackendLogs",
    "BackendPorts",
    "BackendQueue",
    "BackendTrust",
    "BackendValues",
    "RegisteredClient",
    "eventually",
    "users_project",
]
