"""`python -m rigwright`."""

from rigwright.cli import main

main()
