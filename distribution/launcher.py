"""The installed command. The folder `tree` has the product's files, as a clone has them."""

import os
import sys


def main() -> None:
    """Run the command from the folder `tree`."""
    # first: packages of such names that another tool has installed beside this one are not meant
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree"))
    from cli import main as run

    run()
