"""Projects: the root, the snapshot, and the upload of the snapshot."""
