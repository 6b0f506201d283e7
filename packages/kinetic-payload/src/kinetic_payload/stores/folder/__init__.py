"""The store in a folder of a file system."""
