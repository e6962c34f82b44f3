"""`python -m cli`, the command without its script."""

from cli import main

main()
