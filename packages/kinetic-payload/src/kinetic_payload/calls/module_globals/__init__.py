"""Globals of imported modules that code by value reads: a job gets their values at the call."""
