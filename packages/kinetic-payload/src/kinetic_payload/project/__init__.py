"""A project as it is shipped."""
