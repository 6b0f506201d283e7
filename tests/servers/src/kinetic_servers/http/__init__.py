"""What the HTTP servers share: the server in a thread, injected faults, and the log of requests."""
