"""Listeners on the host, which of them lead to the rig's models, and the users that may open its sockets."""

from __future__ import annotations

import itertools
import os
import re
import socket
from typing import Any

from checks.survey.host import common, foreign_proxies, listener_probe, mount_table, network_sockets

LISTENS = "00010000"  # a flag of /proc/net/unix
TUNNELS = re.compile(
    r"ssh|autossh|socat|ncat|nc|cloudflared|ngrok|frpc|bore|chisel|gost|rathole|tailscale|systemd-socket-proxyd|redir"
    r"|rinetd|simpleproxy|portfwd|sshuttle|lt|kubectl"
)


def listening(path: str, pids: list[int]) -> dict[str, list[int]]:
    """The listeners at the name of a unix socket: of some processes' networks, and of the host's; process ids."""
    found: dict[str, list[int]] = {"own": [], "host": []}
    for whose, pid in [*(("own", pid) for pid in pids), ("host", 1)]:
        inodes = set()
        for line in common.lines(common.read(f"/proc/{pid}/net/unix", network_sockets.MOST) or "")[1:]:
            words = line.split(maxsplit=7)
            if len(words) == 8 and words[3] == LISTENS and words[7] == path:
                inodes.add(int(words[6]))
        if whose == "own":
            found["own"] += [pid] if inodes & network_sockets.handles(pid) else []
        else:
            found["host"] += sorted(pid for pids in network_sockets.holders(inodes).values() for pid in pids)
    return found


def mounted(folders: list[str]) -> dict[str, list[str]]:
    """Folder -> where else, and what else over it, is mounted of what is mounted there."""
    rows = [(one.device, one.root, one.point) for one in mount_table.list_mounts(1)]
    found = {}
    for folder in folders:
        here = [row for row in rows if row[2] == folder]
        again = [row[2] for row in here[1:]]
        again += [row[2] for row in rows if here and row[0] == here[0][0] and row[2] != folder]
        # a folder of the file system around it may be mounted elsewhere, too
        found[folder] = again
    return found


def routed() -> list[str]:
    """Interfaces whose neighbours may reach listeners on the loopback interface."""
    folder = "/proc/sys/net/ipv4/conf"
    names = [name for name in sorted(os.listdir(folder)) if name not in ("lo", "default")]
    return [name for name in names if (common.read(f"{folder}/{name}/route_localnet") or "").strip() == "1"]


def addresses() -> list[str]:
    """The host's own addresses."""
    found = set()
    lines = common.lines(common.read("/proc/1/net/fib_trie", network_sockets.MOST) or "")
    for before, line in itertools.pairwise(lines):
        if "/32 host LOCAL" in line:
            found.add(before.split()[-1])
    for line in common.lines(common.read("/proc/1/net/if_inet6", network_sockets.MOST) or ""):
        raw = line.split()[0]
        found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw)))
    return sorted(found)


def tunnels(asked: dict[str, Any], processes: dict[int, foreign_proxies.HostProcess]) -> list[dict[str, str]]:
    """Programs that carry connections, whose words name a port or socket of ours."""
    names_us = naming(asked)
    found = []
    for one in processes.values():
        words = one.words
        program = os.path.basename(one.program) if one.program else ""
        if one.ours or not words or not (TUNNELS.fullmatch(program) or TUNNELS.fullmatch(os.path.basename(words[0]))):
            continue
        if names_us.search(" ".join(words[1:])):
            found.append({"program": one.display_name, "words": common.masked(" ".join(words))[:200]})
    return found


def naming(asked: dict[str, Any]) -> re.Pattern[str]:
    """The pattern of words that name a port or socket of ours."""
    ports = "|".join(map(str, asked["ports"])) or "(?!)"
    here = "|".join(re.escape(one) for one in ["localhost", "[::1]", "::1", "*", *listener_probe.EVERY, *asked["own"]])
    local = rf"(?:^|[\s=,/:@])(?:{here}|127\.[0-9.]+):"
    paths = "".join(f"|{re.escape(path)}" for path in asked["sockets"])
    return re.compile(rf"(?:{local}|(?:^|[\s=]):?)(?:{ports})(?![0-9.:]){paths}")


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: As checks.survey.service_exposure has it.
    """
    asked["own"] = ["::1", *addresses()]
    processes = foreign_proxies.processes(asked["units"])
    rows = [
        (network_sockets.shown(*network_sockets.place(local)), inode)
        for local, _, _, inode in network_sockets.rows(network_sockets.LISTENING)
    ]
    holders = network_sockets.holders({inode for _, inode in rows})
    listeners = []
    for at, inode in rows:
        pids = sorted(holders.get(inode, ()))
        listeners.append(
            {
                "at": at,
                "systemd": 1 in pids,
                "holders": sorted({processes[pid].display_name for pid in pids if pid in processes and pid != 1}),
            }
        )
    units = {
        unit: sorted(pid for pid, one in processes.items() if one.unit == unit) for unit in asked["holders"].values()
    }
    return {
        "listeners": listeners,
        "leads": foreign_proxies.leads(asked, processes, [(at, holders.get(inode, set())) for at, inode in rows]),
        "lying": {path: common.lying(path) for path in [*asked["sockets"], *asked["folders"]]},
        "listening": {
            path: {
                whose: sorted({processes[pid].display_name for pid in pids if pid in processes})
                for whose, pids in listening(path, units[unit]).items()
            }
            for path, unit in asked["holders"].items()
        },
        "mounted": mounted(asked["folders"]),
        "routed": routed(),
        "addresses": addresses(),
        "tunnels": tunnels(asked, processes),
    }
