"""The supervisor: the process that manages one local job."""
