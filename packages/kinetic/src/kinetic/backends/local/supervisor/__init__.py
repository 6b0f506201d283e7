"""The supervisor: the process that keeps one local job."""
