"""Globals of imported modules that code by value reads: a job gets the values that they had at the call."""
