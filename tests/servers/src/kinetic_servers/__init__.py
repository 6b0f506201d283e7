"""Strict servers for tests, on this machine: buckets, a registry of images, Cloud Build, GKE, and Google Cloud.

| module | server | clients that it was written against |
|---|---|---|
| `gcs` | the JSON API of Google Cloud Storage, as `python -m kinetic_servers.gcs` too | Google's, rclone, Kinetic |
| `registry` | the distribution specification, with tokens | docker, Kinetic |
| `cloud_build` | Cloud Build, whose builds really run | Google's |
| `gke` | the GKE API's clusters, and a token service | Google's |
| `google` | the APIs that make clusters, networks, service accounts, buckets and repositories | Google's |

HTTP servers share `http`: one server, one injector of faults, one log. gRPC servers share `rpc`.
"""
