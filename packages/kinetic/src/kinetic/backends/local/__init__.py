"""The local backend: jobs as detached processes on this machine."""
