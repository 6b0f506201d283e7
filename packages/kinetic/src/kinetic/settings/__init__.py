"""Settings, profiles and keys of a user."""
