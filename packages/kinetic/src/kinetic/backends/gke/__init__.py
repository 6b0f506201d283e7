"""The backend `gke`: jobs on a Kubernetes cluster."""
