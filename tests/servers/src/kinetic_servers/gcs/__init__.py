"""A strict Google Cloud Storage server for tests, in a thread or as a process.

```python
with GcsServer() as server:
    server.create_bucket("bucket")
    client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": server.endpoint})
    server.faults.add(operation="objects.insert*", status=503, times=2)
    …
    assert server.requests.count(operation="objects.insert") == 3
```

As a process: `GcsProcess`, or `python -m kinetic_servers.gcs --bucket NAME`, which prints its endpoint first.
"""

from kinetic_servers.gcs.access import EVERYONE, Tokens
from kinetic_servers.gcs.process import GcsProcess
from kinetic_servers.gcs.server import GcsServer
from kinetic_servers.gcs.state import StoredObject
from kinetic_servers.http.faults import Fault, Faults
from kinetic_servers.http.requests import Logged, Requests

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
