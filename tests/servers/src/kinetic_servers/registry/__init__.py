"""A registry of images for tests, in a thread of this process.

```python
with RegistryServer() as server:
    repository = Registry(environ={}).repository(f"{server.host}/project/image")
    server.faults.add(method="PUT", path="*/blobs/uploads/*", status=503, times=2)
    …
    assert server.requests.count(method="PUT") == 3
```

It follows the distribution specification as far as docker and Kinetic use it:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from kinetic_servers.http.faults import Fault, Faults
from kinetic_servers.http.requests import Logged, Requests
from kinetic_servers.registry.access import Access, User
from kinetic_servers.registry.server import RegistryServer

__all__ = [
    "Access",
    "Fault",
    "Faults",
    "Logged",
    "RegistryServer",
    "Requests",
    "User",
]
