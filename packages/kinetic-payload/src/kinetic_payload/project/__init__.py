"""A project as it is shipped: its root, its snapshot, and the upload of that."""
