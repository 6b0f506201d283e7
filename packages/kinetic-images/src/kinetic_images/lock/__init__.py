"""Exact packages for a target, from what a project declares."""
