"""Tests that every store passes, and a store in memory to test with."""

from kinetic_payload.testing.memory_store import MemoryStore
from kinetic_payload.testing.store_contract import StoreContract, increment

__all__ = ["MemoryStore", "StoreContract", "increment"]
