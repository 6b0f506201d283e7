"""Code and data formats that client and runner share.

The client (`kinetic`) and the runner (`kinetic_runner`) both use this package: object names (`layout`),
persisted records (`records`), snapshots of a project (`project`), pickled calls (`calls`) and stores (`stores`).
"""

__version__ = "0.1.0"
