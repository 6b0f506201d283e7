"""Google Cloud for tests: the APIs that make what jobs need, with state, over the wire of Google's clients.

```python
with GoogleCloud(folder, api_server=lambda cluster: (url, ca)) as cloud:
    cloud.add_project("my-project", number=123456789012)
    os.environ.update(cloud.environment)
    cloud.dies_after(3)
    …
    assert cloud.changes == ["BatchEnableServices projects/my-project", …]
    assert cloud.resources() == before
```

| module | API |
|---|---|
| `projects` | Service Usage, Resource Manager, Cloud Quotas |
| `accounts` | IAM: service accounts |
| `repositories` | Artifact Registry |
| `clusters` | GKE |
| `billing` | Cloud Billing: projects, the catalogue |
| `compute` | Compute, REST; its resources are in `networks` |
| `buckets` | Cloud Storage: `kinetic_servers.gcs` with this package's controls |

They know the methods that Kinetic calls, and no others. `GoogleCloud` has the controls: `dies_after`, `fail`,
`fail_operation`, `deny`, `lag`, `polls`, `hook`.
`cloud.compute.faults` and `cloud.buckets.faults` break connections; `cloud.buckets.create_bucket` with an
unknown project makes a stranger's bucket.

Where it differs from Google: an API must be enabled in the project of the resource, not in the caller's, and
enabling one enables no other. Policies are kept and checked, but `deny` alone decides what the caller may do.
Operations end after polls, not after time; a look at a cluster or a resource of Compute is a poll too.
The firewall rules of a deleted cluster always stay: Google leaves them at times. GKE names a missing
permission as IAM does, with an `ErrorInfo`; Google's own sentence is
`Required "container.clusters.get" permission(s) for "projects/P".` without one.
"""

from kinetic_servers.google.server import GoogleCloud

__all__ = ["GoogleCloud"]
