"""Builders: a recipe becomes an image in a registry."""
