"""Tests that every store passes, and stores to test with: in memory, and a bucket server (`gcs`)."""

from kinetic_payload.testing.memory_store import MemoryStore
from kinetic_payload.testing.store_contract import StoreContract, increment

__all__ = ["MemoryStore", "StoreContract", "increment"]
