"""Docker's daemon: its own report, its listeners, and its containers with cards."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from checks.survey.host import common, network_sockets, systemd_properties

ROOT = ""  # a test has a folder for a host
LIMIT = 10.0  # s for an answer of it
MOST = 8 << 20  # bytes of one
SAID = (
    *("ServerVersion", "Runtimes", "DefaultRuntime", "LoggingDriver", "DockerRootDir", "LiveRestoreEnabled", "Debug"),
    *("Driver", "CDISpecDirs", "Labels"),
)
LISTENS = "00010000"  # a flag of /proc/net/unix
OWN = "/run/docker/"  # root's alone: where it talks to itself


class UnixSocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self.path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)


def asked_of(path: str, what: str) -> Any:
    """The answer of Docker's daemon; None where there is none."""
    connection = UnixSocketConnection(path)
    try:
        connection.request("GET", what)
        answer = connection.getresponse()
        return json.loads(answer.read(MOST)) if answer.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException, RecursionError):
        return None
    finally:
        connection.close()


def carded(path: str, row: dict[str, Any]) -> Iterator[list[str]]:
    """(name, how) of a container that has asked for cards."""
    more = asked_of(path, f"/containers/{row['Id']}/json") or {}
    name, host = str(more["Name"]).lstrip("/"), more["HostConfig"]
    for one in host.get("DeviceRequests") or []:
        drivers = [str(one.get("Driver") or ""), *(str(two) for two in one.get("DeviceIDs") or [])]
        if one.get("Driver") == "cdi" or any("nvidia" in two or two == "" for two in drivers):
            yield [name, str(one.get("Driver") or "nvidia")]
    if host.get("Runtime") == "nvidia":
        yield [name, "the runtime nvidia"]


def of_each(rows: Any, read: Callable[[Any], Iterator[list[str]]]) -> list[list[str]] | None:
    """The facts of each container; None where the daemon lists none."""
    if not isinstance(rows, list):
        return None
    found: list[list[str]] = []
    for row in rows:
        # one that has ended meanwhile is not told of
        with suppress(KeyError, TypeError, AttributeError, IndexError, ValueError):
            found += read(row)
    return found


def listens(pid: str) -> list[str]:
    """ADDRESS:PORT of the TCP sockets that a process listens on, also those that another process opened for it."""
    held = network_sockets.handles(pid)
    return sorted(
        network_sockets.shown(*network_sockets.place(local))
        for local, _, _, inode in network_sockets.rows(network_sockets.LISTENING)
        if inode in held
    )


def sockets(pid: str) -> dict[str, dict[str, object]]:
    """Path -> what lies there, of each unix socket that a process listens on, but those in a folder of its own."""
    held, found = network_sockets.handles(pid), {}
    for line in common.lines(common.read(f"{ROOT}/proc/{pid}/net/unix", network_sockets.MOST) or "")[1:]:
        words = line.split(maxsplit=7)
        if len(words) == 8 and words[3] == LISTENS and int(words[6]) in held:
            path = words[7]
            if not os.path.realpath(path).startswith(OWN):
                found[path] = common.lying(f"{ROOT}{path}")
    return found


def running(path: str) -> dict[str, object] | None:
    """The daemon that runs; None where none does."""
    unit = "docker.service"
    pid = str(systemd_properties.properties([unit], "MainPID")[unit].get("MainPID", 0))
    if pid == "0":
        return None
    info = asked_of(path, "/info")
    info = info if isinstance(info, dict) else {}
    swarm = info.get("Swarm")
    rows = asked_of(path, "/containers/json")
    return {
        "arguments": (common.read(f"{ROOT}/proc/{pid}/cmdline") or "").rstrip("\0").split("\0"),
        "info": {name: json.dumps(info[name]) for name in SAID if name in info},
        "listens": listens(pid),
        "sockets": sockets(pid),
        "swarm": isinstance(swarm, dict) and swarm.get("LocalNodeState") == "active",
        "carded": of_each(rows, lambda row: carded(path, row)),
    }
