"""What both ends of the wire must agree on.

The client (`kinetic`) and the worker (`kinetic_runner`) meet in this package: object names
(`layout`), persisted records (`records`), snapshots of a project, pickled calls and stores.
"""

__version__ = "0.1.0"
