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
# Kinds of interfaces that carry nothing until somebody has them do so -> the kernel's module that has them
KINDS = {
    **{kind: kind for kind in ("dummy", "bridge", "ifb", "nlmon", "wireguard")},
    "bond": "bonding",
}
MODULES = "/sys/module"
BUILT_IN = f"/lib/modules/{os.uname().release}/modules.builtin"
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
        Its answer, with `failed`: why they cannot be loaded, empty where they can; and `judged`, whether that was all:
        no module is loaded for a look, and without a kind of interfaces at hand rules that need some cannot be read.
        Nothing where a boot loads none.

    Raises:
        RuntimeError: they cannot be looked at.
    """
    commands = saved()
    if not commands:
        return {}
    kinds = at_hand()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            said = json.dumps(_load_in_own_network(commands, interfaces, kinds, read)).encode()
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
    if path := str(found.pop("unmade")):
        # where the interfaces are, and nothing comes of it
        status, _, complaint = common.ended("nft", "-c", "-f", path, limit=20)
        found["failed"] = why(path, complaint) if status else ""
    return {**found, "judged": not path}


def at_hand() -> list[str]:
    """Kinds of interfaces that the kernel has already: to ask for another one has it load a module."""
    text = common.read(BUILT_IN) or ""
    there = [kind for kind, module in KINDS.items() if os.path.isdir(f"{MODULES}/{module}")]
    return there + [kind for kind, module in KINDS.items() if f"/{module}.ko\n" in text and kind not in there]


def why(path: str, said: str) -> str:
    """Why a file cannot be loaded, by what the program says that cannot."""
    return f"{path}: {said.strip().partition(chr(10))[0][:200]}"


def _load_in_own_network(
    commands: list[list[str]], interfaces: dict[str, int], kinds: list[str], read: Callable[[], dict[str, object]]
) -> dict[str, object]:
    if ctypes.CDLL(None, use_errno=True).unshare(NEWNET):
        raise OSError(ctypes.get_errno(), "no network of one's own")
    made = all(_make(name, number, kinds) for name, number in interfaces.items() if name != "lo")
    failed = unmade = ""
    for words in commands:
        status, _, said = common.ended(*words, limit=20)
        # nft(8) alone takes an interface by its number, which one that could not be made here has not
        if status and words[0] == "nft" and not made:
            unmade = words[-1]
        elif status:
            failed = why(words[-1], said)
    return {**read(), "failed": failed, "unmade": unmade}


def _make(name: str, number: int, kinds: list[str]) -> bool:
    with suppress(OSError):
        return any(not common.ended("ip", "link", "add", name, "index", str(number), "type", kind)[0] for kind in kinds)
    return False
