"""Servers for tests that store what they receive."""
