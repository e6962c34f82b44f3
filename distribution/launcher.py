"""The installed command. The folder `tree` has the product's files, as a clone has them."""

import sys
from pathlib import Path


def main() -> None:
    """Run the command from the folder `tree`."""
    # first: packages of such names that another tool has installed beside this one are not meant
    sys.path.insert(0, str(Path(__file__).absolute().with_name("tree")))
    from cli import main as run

    run()
