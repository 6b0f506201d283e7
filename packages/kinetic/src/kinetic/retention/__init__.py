"""For how long stored objects are kept: their ages, what jobs still need, and removal."""
