"""Which package index and channels a host asks by itself: `PYTHON -I defaults.py index`, or `channel NAME`.

By a Python that has pip or py-rattler, for they know: pip by its configuration and environment, or else its own
constant; py-rattler by the name. Prints a list of addresses as JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def list_pip_indexes() -> list[str]:
    """The indexes that pip would ask."""
    parser = import_module("pip._internal.commands").create_command("download").parser
    options, _ = parser.parse_args([])
    return [] if options.no_index else [options.index_url, *options.extra_index_urls]


def list_channel_addresses(name: str) -> list[str]:
    """Where py-rattler would look for a channel."""
    return [import_module("rattler").Channel(name).base_url]


if __name__ == "__main__":
    print(json.dumps(list_pip_indexes() if sys.argv[1] == "index" else list_channel_addresses(sys.argv[2])))
