"""`python -m benchback.cli`."""

from benchback.cli import main

main()
