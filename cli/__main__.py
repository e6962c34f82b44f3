"""`python -m rigwright`."""

from cli import main

main()
