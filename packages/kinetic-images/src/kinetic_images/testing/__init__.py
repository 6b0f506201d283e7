"""Servers for tests: a registry of images, and Cloud Build."""
