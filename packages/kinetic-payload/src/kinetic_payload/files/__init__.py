"""Files: written as a whole or not at all, private, durable, locked."""
