"""Make what jobs on a cluster need; the command line uses it, and so can a script."""
