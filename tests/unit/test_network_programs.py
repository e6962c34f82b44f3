"""Jobs and units reach the network by one fetcher: no other program of theirs follows an address from outside."""

import re

import pytest

from tests.unit.script_table import SCRIPTS

# curl as a client of our own sockets names one, or reads it with the request of a unit; pip without an index has files
CLIENTS = {
    "curl": re.compile(r"--unix-socket|--version|--config -"),
    "wget": None,
    "aria2c": None,
    "git clone": None,
    "pip install": re.compile(r"--no-index"),
    "pip download": None,
    "pip wheel": None,
    "skopeo": re.compile(r"unshare --net skopeo"),
}


def commands(script: str) -> list[str]:
    """The lines of a script without its comments, each with those that continue it."""
    lines = script.replace("\\\n", " ").splitlines()
    return [line for line in lines if not re.match(r"\s*(#|for )", line)]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_fetches_by_the_fetcher_alone(name: str) -> None:
    for line in commands(SCRIPTS[name]()):
        words = line.replace('"$pip"', "pip")
        for client, bounded in CLIENTS.items():
            if re.search(rf"(?<![\w./-]){client}\s", words):
                assert bounded and bounded.search(words), line
