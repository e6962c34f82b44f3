"""Rules of packet filters that the next boot loads: they are loaded where no packet comes, and read there."""

from __future__ import annotations

import ctypes
import glob
import json
import os
from collections.abc import Callable
from contextlib import suppress

from checks.survey.host import common

NEWNET = 0x40000000  # CLONE_NEWNET (linux/sched.h)
WANTS = "/etc/systemd/system/*.wants"
# What loads rules at a boot -> the programs that do, each with the file that it reads (nft(8), iptables-restore(8))
SAVED: dict[str, list[tuple[list[str], str]]] = {
    "nftables": [(["nft", "-f"], "/etc/nftables.conf")],
    "netfilter-persistent": [
        # sets that those rules name, of ipset-persistent
        (["ipset", "restore", "-exist", "-file"], "/etc/iptables/ipsets"),
        (["iptables-restore"], "/etc/iptables/rules.v4"),
        (["ip6tables-restore"], "/etc/iptables/rules.v6"),
    ],
}
KINDS = ("dummy", "bridge")
MOST = 32 << 20  # bytes of what is read of them


def saved() -> list[list[str]]:
    """Command lines that a boot comes to; none where nothing is loaded then."""
    found = []
    for unit, loaded in SAVED.items():
        if glob.glob(f"{WANTS}/{unit}.service"):
            found += [[*words, path] for words, path in loaded if os.path.isfile(path)]
    return found


def loaded(interfaces: dict[str, int], read: Callable[[], dict[str, object]]) -> dict[str, object]:
    """What is read of the rules once they are loaded, in a network of their own with interfaces of the same names.

    Args:
        interfaces: Those, each with its number.
        read: What reads them; it answers with what JSON can have.

    Returns:
        Its answer, with `failed`: why they cannot be loaded, empty where they can. Nothing where a boot loads none.

    Raises:
        RuntimeError: they cannot be looked at.
    """
    commands = saved()
    if not commands:
        return {}
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            said = json.dumps(_alone(commands, interfaces, read)).encode()
            while said:
                said = said[os.write(writing, said) :]
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read(MOST)
    os.waitpid(pid, 0)
    try:
        found: dict[str, object] = json.loads(text)
    except ValueError:
        raise RuntimeError("the rules of the next boot cannot be looked at") from None
    return found


def _alone(
    commands: list[list[str]], interfaces: dict[str, int], read: Callable[[], dict[str, object]]
) -> dict[str, object]:
    if ctypes.CDLL(None, use_errno=True).unshare(NEWNET):
        raise OSError(ctypes.get_errno(), "no network of one's own")
    made = all(_make(name, number) for name, number in interfaces.items() if name != "lo")
    failed = ""
    for words in commands:
        status, _, said = common.ended(*words, limit=20)
        # a rule may name an interface that could not be made here
        if status and made:
            failed = f"{words[-1]}: {said.strip().partition(chr(10))[0][:200]}"
    return {**read(), "failed": failed}


def _make(name: str, number: int) -> bool:
    with suppress(OSError):
        return any(not common.ended("ip", "link", "add", name, "index", str(number), "type", kind)[0] for kind in KINDS)
    return False
