"""Former verbs and verbs of other tools, and the command that replaces each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from cli.default_inventory import is_inventory
from cli.prog_name import NAME

RENAMED: Mapping[str, str] = {
    "health": "status",
    "verify": "check --serving",
    "diagnose": "doctor",
    "stress": "bench stress",
    "load": "bench load",
    **{topic: f"show {topic}" for topic in ("generations", "models", "patches", "variants", "advisories", "url")},
    "report": "show report",
    "compose": "show compose",
    "render": "show compose",
    "keys": "key",
    "ca": "key ca",
    "host-key": "key host",
    "upgrade": "deploy --upgrade-driver",
    "run": "ssh",
    "shell": "ssh --in",
    "tunnel": "ssh --tunnel",
    "completion": "install --completion",
    # of other tools
    "apply": "deploy",
    "up": "deploy",
    "down": "stop",
    "ps": "status",
    "list": "status",
    "update": "lock --refresh",
}
KEY_ACTIONS = {"make": "make", "list": "list", "rotate": "rotate", "revoke": "revoke", "bring": "sync"}


def replacement_command(verb: str, words: Sequence[str]) -> str:
    """The command line that replaces a former verb with its words.

    Raises:
        KeyError: the verb is not a former one.
    """
    replacement, rest = RENAMED[verb].split(), list(words)
    if verb == "keys":
        action = next((one for one in rest if one in KEY_ACTIONS), "")
        if action:
            rest.remove(action)
        replacement.append(KEY_ACTIONS.get(action, "list"))
    elif verb == "render":
        rest = [part for word in rest for part in word.split("=", 1)] if any("=" in word for word in rest) else rest
        rest = [word for word in rest if word != "--compose"]
        # INVENTORY goes before INSTANCE
        rest.sort(key=lambda word: not is_inventory(word))
    elif verb in ("shell", "tunnel"):
        at = next((number for number, word in enumerate(rest) if is_inventory(word)), -1)
        replacement.append(rest.pop(at + 1) if len(rest) > at + 1 and rest[at + 1][:1] != "-" else "NAME")
    return shlex.join([NAME, *replacement, *rest])
