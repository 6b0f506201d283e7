"""The edges to Google's APIs: each reads, makes, changes and deletes resources of one kind."""
