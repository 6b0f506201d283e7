"""Records: what is persisted about a job, each kind a dataclass in a module of its own.

A process imports only the kinds that it uses: making a dataclass takes as long as importing a small module.
"""
