"""`Data` on the wire."""
