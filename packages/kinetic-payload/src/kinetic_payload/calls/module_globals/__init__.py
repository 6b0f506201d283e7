"""Globals of the project's modules: a job gets the values that they had at the call."""
