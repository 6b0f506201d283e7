"""A strict Google Cloud Storage server for tests, in a thread or as a process.

```python
with GcsServer() as server:
    server.create_bucket("bucket")
    client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": server.endpoint})
    server.faults.add(operation="objects.insert*", status=503, times=2)
    …
    assert server.requests.count(operation="objects.insert") == 3
```

As a process: `GcsProcess`, or `python -m kinetic_payload.testing.gcs --bucket NAME`, which prints its
endpoint first.
It needs the extra `testing` of this package.
"""

from kinetic_payload.testing.gcs.access import EVERYONE, Tokens
from kinetic_payload.testing.gcs.faults import Fault, Faults
from kinetic_payload.testing.gcs.process import GcsProcess
from kinetic_payload.testing.gcs.requests import Logged, Requests
from kinetic_payload.testing.gcs.server import GcsServer
from kinetic_payload.testing.gcs.state import StoredObject

__all__ = [
    "EVERYONE",
    "Fault",
    "Faults",
    "GcsProcess",
    "GcsServer",
    "Logged",
    "Requests",
    "StoredObject",
    "Tokens",
]
