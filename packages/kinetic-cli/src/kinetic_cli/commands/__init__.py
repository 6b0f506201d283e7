"""The commands, one in each module: `kinetic jobs logs` is `commands/jobs/logs.py`."""
