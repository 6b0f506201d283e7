"""Records: what is persisted about a job."""
