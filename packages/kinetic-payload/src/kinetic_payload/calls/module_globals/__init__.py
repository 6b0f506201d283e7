"""Globals of imported modules that code by value reads: a job has those of the call."""
