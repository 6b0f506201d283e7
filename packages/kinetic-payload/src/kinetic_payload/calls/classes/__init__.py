"""Classes that travel by value."""
