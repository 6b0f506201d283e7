"""Compute's REST API: networks, what is in them, and what zones offer."""
