"""Registries of images: addresses, manifests, credentials and the HTTP API."""
