"""The process that Kubernetes or a supervisor starts."""
