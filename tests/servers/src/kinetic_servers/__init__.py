"""Strict servers for tests, on this machine: a bucket service, a registry of images, Cloud Build, the GKE API.

| module | server | clients that it was written against |
|---|---|---|
| `gcs` | the JSON API of Google Cloud Storage, as `python -m kinetic_servers.gcs` too | Google's, rclone, Kinetic |
| `registry` | the distribution specification, with tokens | docker, Kinetic |
| `cloud_build` | Cloud Build, whose builds really run | Google's |
| `gke` | the GKE API, and a token service | Google's |

The first two share `http`: one server, one injector of faults, one log. The last two share `rpc`.
"""
