"""Reading the objects of a cluster: pure functions over manifests."""
