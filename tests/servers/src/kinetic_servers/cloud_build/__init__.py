"""A Cloud Build for tests: Google's real client creates builds, and their steps really run.

```python
with GcsServer() as buckets, CloudBuildServer(buckets.endpoint, PythonSteps({})) as builds:
    buckets.create_bucket("builds")
    settings = CloudBuildSettings(project="test-project", endpoint=builds.endpoint)
```

`DockerSteps` runs steps with docker, and pushes images with it. `PythonSteps` calls a Python function in
place of each step's image, for machines without docker. The source, and the log, are objects of a bucket
server such as `kinetic_servers.gcs`.
"""

from kinetic_servers.cloud_build.server import CloudBuildServer
from kinetic_servers.cloud_build.steps import DockerSteps, PythonSteps, Step

__all__ = ["CloudBuildServer", "DockerSteps", "PythonSteps", "Step"]
