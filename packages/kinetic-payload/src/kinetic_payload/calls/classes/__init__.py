"""Classes that travel by value: how they are pickled and rebuilt."""
