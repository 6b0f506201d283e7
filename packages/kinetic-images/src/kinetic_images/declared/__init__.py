"""The dependencies that a project declares."""
