"""A registry of images for tests, in threads of this process.

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

from kinetic_images.testing.registry.access import Access, User
from kinetic_images.testing.registry.contract import RegistryContract
from kinetic_images.testing.registry.faults import Fault, Faults
from kinetic_images.testing.registry.requests import Logged, Requests
from kinetic_images.testing.registry.server import RegistryServer

__all__ = [
    "Access",
    "Fault",
    "Faults",
    "Logged",
    "RegistryContract",
    "RegistryServer",
    "Requests",
    "User",
]
