"""`KINETIC_HOME` on this machine: its folders, the environments in it, and what is removed from it."""
