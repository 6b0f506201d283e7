"""For tests: `BackendContract`, which every backend passes, and fakes.

```python
class TestMyBackend(BackendContract):
    def make_client(self, folder: Path) -> Client:
        return RegisteredClient(backend="mine", accelerator="cpu", container_image="…")

    def refusing_starts(self, client: Client) -> AbstractContextManager[object]: ...
```

See `docs/backends.md`. `FakeServices` replaces a store and a backend.
"""

from kinetic.testing.clients import (
    Client,
    RegisteredClient,
    ServicesClient,
    eventually,
    users_project,
)
from kinetic.testing.contract import (
    BackendAttempts,
    BackendBasics,
    BackendContract,
    BackendHosts,
    BackendLife,
    BackendLogs,
    BackendPorts,
    BackendQueue,
    BackendTrust,
    BackendValues,
)
from kinetic.testing.fakes import (
    FakeBackend,
    FakeServices,
    FakeStore,
    a_record,
    a_request,
)
from kinetic.testing.launches import (
    a_launch,
    await_outcome,
    fake_runner_source,
    job_ids_of,
    kill_hard,
    outcome_of,
)
from kinetic.testing.protocol import BackendProtocol
from kinetic.testing.running import RunningBackend

__all__ = [
    "BackendAttempts",
    "BackendBasics",
    "BackendContract",
    "BackendHosts",
    "BackendLife",
    "BackendLogs",
    "BackendPorts",
    "BackendProtocol",
    "BackendQueue",
    "BackendTrust",
    "BackendValues",
    "Client",
    "FakeBackend",
    "FakeServices",
    "FakeStore",
    "RegisteredClient",
    "RunningBackend",
    "ServicesClient",
    "a_launch",
    "a_record",
    "a_request",
    "await_outcome",
    "eventually",
    "fake_runner_source",
    "job_ids_of",
    "kill_hard",
    "outcome_of",
    "users_project",
]
