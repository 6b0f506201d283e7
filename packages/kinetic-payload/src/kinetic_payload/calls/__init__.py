"""A call as a pickle: dumped by the client, loaded by the runner."""
