"""`python -m benchback`."""

from benchback.cli import main

main()
