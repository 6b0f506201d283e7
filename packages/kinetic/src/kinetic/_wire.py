"""The version of the wire format, in a line that is also read as text."""

# The runner compares the next line of an installed `kinetic` with `WIRE_LINE` of `kinetic_payload.layout`,
# without importing it. A runner of an earlier version does not find its own line here, and uses the
# `kinetic` of its bundle.
WIRE_VERSION = 1  # modules 2
