"""Files: atomic, private and durable writes, temporary files, locks."""
