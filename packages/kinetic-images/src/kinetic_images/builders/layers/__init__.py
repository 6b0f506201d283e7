"""Layers: wheels become layers of an image in its registry, without a program that builds images."""
