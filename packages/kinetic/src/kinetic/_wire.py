"""The version of the wire format, in a line that is also read as text."""

# The runner reads the next line of an installed `kinetic` without importing it. Keep its form.
WIRE_VERSION = 1
