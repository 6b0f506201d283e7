"""The runner as one file."""
