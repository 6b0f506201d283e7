"""What the objects of a cluster mean: pure functions over manifests."""
