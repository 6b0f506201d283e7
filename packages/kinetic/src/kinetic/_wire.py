"""The version of the wire format, in a line that is also read as text."""

# The runner reads the next line of an installed `kinetic` without importing it: it is `WIRE_LINE` of
# `kinetic_payload.layout`. An earlier runner does not find its own line here, and uses the `kinetic` of its bundle.
WIRE_VERSION = 1  # modules 2
