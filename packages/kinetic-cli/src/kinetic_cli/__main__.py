"""`python -m kinetic_cli` is `kinetic`."""

from kinetic_cli.main import main

main()
