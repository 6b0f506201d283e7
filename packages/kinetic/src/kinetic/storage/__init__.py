"""What Kinetic has stored on this machine and in the buckets of a cluster, and its removal on request."""
