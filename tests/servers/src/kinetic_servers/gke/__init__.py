"""A GKE API and a token service for tests. Their clusters are API servers that the test names.

```python
with GkeServer(folder) as gke:
    gke.add("demo", project="my-project", location="us-central1-a", server=url, ca=pem)
    os.environ.update(gke.environment)
    cluster = connect_to_gke("my-project", "us-central1-a", "demo", endpoint=gke.endpoint)
```

Google's real clients talk to it, over TLS and with a service account's key.
"""

from kinetic_servers.gke.google_identity import GoogleIdentity
from kinetic_servers.gke.server import Authority, GkeServer

__all__ = ["Authority", "GkeServer", "GoogleIdentity"]
