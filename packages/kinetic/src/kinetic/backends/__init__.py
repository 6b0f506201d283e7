"""Backends, which run jobs."""
