"""Batches: one function over many inputs, under one handle."""
