"""A job's data: references become paths."""
