"""Backends: what runs a job."""
