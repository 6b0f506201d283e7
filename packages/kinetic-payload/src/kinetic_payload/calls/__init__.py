"""A call as a pickle: dumped where it is made, loaded where it runs."""
