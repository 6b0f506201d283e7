"""Images of jobs on a cluster."""
