"""Starts the router: `python3 -I FOLDER [SETTINGS KEYS]`, with the sockets `light` and `heavy` from systemd."""

import sys

# a folder that is run is where modules come from first: a file of ours would be taken for one of Python's own
folder = sys.path[0].rstrip("/")
sys.path[0], _, package = folder.rpartition("/")

if __name__ == "__main__":
    from importlib import import_module

    sys.exit(import_module(f"{package}.serve").main(folder, sys.argv[1:]))
