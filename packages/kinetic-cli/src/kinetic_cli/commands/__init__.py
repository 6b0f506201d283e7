"""The commands, one a module: `kinetic jobs logs` is `commands/jobs/logs.py`."""
