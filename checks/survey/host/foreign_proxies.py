"""Foreign listeners that lead to Rigwright's: the survey asks each as an outside client would, and sees which then
connects to Rigwright."""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Any, NamedTuple

from checks.survey.host import common, network_sockets, systemd_properties
from checks.survey.host.listener_probe import StrangerRequests, reached

FILES, SIZE = 400, 1 << 19  # of a web server's settings: how many are read, and bytes of each
# Programs that answer for others by their settings: program -> where those lie.
SERVERS = {
    "nginx": "/etc/nginx",
    "apache2": "/etc/apache2",
    "haproxy": "/etc/haproxy",
    "caddy": "/etc/caddy",
    "lighttpd": "/etc/lighttpd",
    "traefik": "/etc/traefik",
    "envoy": "/etc/envoy",
    "squid": "/etc/squid",
    "varnishd": "/etc/varnish",
    "stunnel4": "/etc/stunnel",
    "hitch": "/etc/hitch",
}
SSHD = "/usr/sbin/sshd"
# Programs of the distribution that HTTP requests tell nothing about: they log the client, or take it for something
# else.
QUIET = {
    *("/usr/sbin/rpcbind", "/usr/sbin/rpc.statd", "/usr/sbin/smbd", "/usr/sbin/mariadbd", "/usr/sbin/mysqld"),
    *("/usr/bin/redis-check-rdb", "/usr/bin/redis-server", "/usr/bin/memcached", "/usr/bin/mongod", "/usr/sbin/exim4"),
    *("/usr/lib/postfix/sbin/master", "/usr/lib/systemd/systemd-resolved", "/usr/sbin/dnsmasq", "/usr/sbin/named"),
    *("/usr/sbin/cupsd", "/usr/sbin/slurmd", "/usr/sbin/munged"),
}


class HostProcess(NamedTuple):
    """A process of the host."""

    pid: int
    parent: int
    program: str
    words: tuple[str, ...]
    group: str
    """Its control group."""
    ours: bool

    @property
    def unit(self) -> str:
        """The system's unit that it is of, with the last one inside of that: a user's manager, or a container's, may
        have units of any name.
        """
        parts = self.group.strip("/").split("/")
        units = [number for number, part in enumerate(parts) if part.endswith((".service", ".scope"))]
        if not units:
            return ""
        outside = all(part.endswith(".slice") for part in parts[: units[0]])
        first = parts[units[0]] if outside else parts[0]
        return first if outside and units[0] == units[-1] else f"{first}/{parts[units[-1]]}"

    @property
    def display_name(self) -> str:
        """Its name in messages."""
        program = os.path.basename(self.program) or "a process"
        return f"{program} of {self.unit}" if self.unit else program


def processes(units: list[str]) -> dict[int, HostProcess]:
    """All processes; those of these units are ours."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        group = common.read(f"/proc/{name}/cgroup")
        status = common.read(f"/proc/{name}/stat")
        if not group or not status:
            continue
        group = next((line[3:] for line in common.lines(group) if line.startswith("0::")), "")
        program = ""
        with contextlib.suppress(OSError):
            program = os.readlink(f"/proc/{name}/exe")
        words = tuple(common.begin(f"/proc/{name}/cmdline").split("\0"))[:-1]
        parent = int(status.rpartition(")")[2].split()[1])
        made = HostProcess(int(name), parent, program.removesuffix(" (deleted)"), words[:100], group, ours=False)
        found[made.pid] = made if made.unit not in units else made._replace(ours=True)
    return found


def is_host_address(asked: dict[str, Any], address: str) -> bool:
    """Whether an address is the host's."""
    return address.startswith("127.") or address in asked["own"]


def clients(asked: dict[str, Any], ours: list[int]) -> set[int]:
    """Inodes of sockets that are connected to us, from the host itself."""
    ports = {f"{port:04X}" for port in asked["ports"]}
    found = {
        inode
        for _, remote, _, inode in network_sockets.rows(network_sockets.ESTABLISHED)
        if remote.rpartition(":")[2] in ports and is_host_address(asked, network_sockets.place(remote)[0]) and inode
    }
    accepted: set[int] = set()
    for pid in ours:
        for line in common.lines(common.read(f"/proc/{pid}/net/unix", network_sockets.MOST) or "")[1:]:
            words = line.split(maxsplit=7)
            if len(words) == 8 and words[7] in asked["sockets"]:
                accepted.add(int(words[6]))
    with contextlib.suppress(OSError):
        found |= {inode for inode, peer in network_sockets.peers().items() if peer in accepted}
    return found


def passing(asked: dict[str, Any]) -> int:
    """How many connections to us have ended a moment ago."""
    ports = {f"{port:04X}" for port in asked["ports"]}
    ending = [
        {local.rpartition(":")[2], remote.rpartition(":")[2]}
        for local, remote, *_ in network_sockets.rows(*network_sockets.ENDING)
    ]
    return sum(bool(one & ports) for one in ending)


def mentions(asked: dict[str, Any], one: HostProcess) -> str:
    """The file of a process's settings, or of its own words, in which we are named; empty for none."""
    ports = "|".join(map(str, asked["ports"]))
    here = "|".join(re.escape(own) for own in ["localhost", "[::1]", *asked["own"]])
    paths = "".join(f"|{re.escape(path)}" for path in asked["sockets"])
    ours = re.compile(rf"(?:(?:{here}|127\.[0-9.]+)[:'\", ]+(?:{ports})(?![0-9.])){paths}")
    if ours.search(" ".join(one.words)):
        return "its command line"
    base = SERVERS.get(os.path.basename(one.program), "")
    files = []
    # some programs write other words over their own, with spaces between
    for word in " ".join(one.words).split()[1:]:
        path = os.path.join("/", word.rpartition("=")[2])
        if not os.path.isabs(word.rpartition("=")[2]):
            with contextlib.suppress(OSError):
                path = os.path.join(os.readlink(f"/proc/{one.pid}/cwd"), word)
        files += [path] if os.path.isfile(path) else []
    files += configured(base) if base else []
    return next((path for path in files[:FILES] if ours.search(common.begin(path, SIZE))), "")


def configured(base: str) -> list[str]:
    """Files of a web server's settings that count."""
    files: list[str] = []
    for folder, folders, names in os.walk(base):
        folders[:] = [name for name in folders if not name.endswith("-available")]
        files += [os.path.join(folder, name) for name in names if not name.endswith(("~", ".bak", ".dpkg-old"))]
    return files[:FILES]


def leads(
    asked: dict[str, Any], there: dict[int, HostProcess], rows: list[tuple[str, set[int]]]
) -> list[dict[str, str]]:
    """Foreign listeners that lead to Rigwright's: their addresses, their owners, and the evidence.

    Args:
        asked: As checks.survey.service_exposure has it.
        there: All processes.
        rows: Listeners, each with its processes.
    """
    places = {network_sockets.shown(*reached(at)) for at in asked["places"]}
    foreign: dict[str, set[int]] = {}
    for at, pids in rows:
        holding = {there[pid] for pid in pids if pid in there}
        # another process of sshd's holds the forwarded ports of a user's connection
        daemon = any(one.program in QUIET or (one.program == SSHD and one.parent == 1) for one in holding)
        if int(at.rpartition(":")[2]) not in asked["ports"] and not daemon:
            foreign.setdefault(at, set()).update(pids)
    if not foreign or not asked["ports"]:
        return []
    ours = [pid for pid, one in there.items() if one.ours]
    before = clients(asked, ours)
    asking = StrangerRequests([*foreign, *places])
    try:
        answers = asking.answers()
        now = network_sockets.holders(clients(asked, ours) - before)
    finally:
        asking.end()
    bodies = {body(answers.get(at, "")) for at in places} - {("", "")}
    there = processes(asked["units"])
    new = {
        there[pid]
        for pids in now.values()
        for pid in pids
        if pid in there and not there[pid].ours and pid != asking.pid
    }
    found, doubtful = [], []
    for at, pids in foreign.items():
        holding = {there[pid] for pid in pids if pid in there and pid != 1}
        groups = {one.group for one in holding} | activated(at, pids)
        through = next((one for one in new if one in holding or one.group in groups), None)
        named_in = next(filter(None, (mentions(asked, one) for one in holding)), "")
        server = any(os.path.basename(one.program) in SERVERS for one in holding)
        status, said = body(answers.get(at, ""))
        offers = status == "200" and bool(set(re.findall(r'"id" *: *"([^"]*)"', said)) & set(asked["models"]))
        told = (
            ", ".join(sorted({one.display_name for one in holding}))
            or ", ".join(sorted(activated(at, pids)))
            or "systemd"
        )
        why = ""
        if offers:
            why = "it answers with our models"
        elif through:
            why = f"{through.display_name} then connects to us"
        elif named_in and ((status, said) in bodies or server):
            why = f"{named_in} names us"
        elif (status in ("401", "403") and (status, said) in bodies) or new:
            doubtful.append((at, told))
        if why:
            found.append({"at": at, "program": told, "how": why})
    return found + [
        {"at": at, "program": told, "how": "a connection to us comes with each to it"}
        for at, told in doubtful
        if twice(asked, at, ours)
    ]


def twice(asked: dict[str, Any], at: str, ours: list[int]) -> bool:
    """Whether, each of two times that one listener is asked, there is a connection to Rigwright that was not before."""
    for _ in range(2):
        before, gone = clients(asked, ours), passing(asked)
        asking = StrangerRequests([at])
        try:
            asking.answers()
            new = network_sockets.holders(clients(asked, ours) - before)
            others = [pids for pids in new.values() if asking.pid not in pids]
        finally:
            asking.end()
        if not others and passing(asked) <= gone:
            return False
    return True


def activated(at: str, pids: set[int]) -> set[str]:
    """Control groups of what systemd starts for a listener of its own."""
    if pids != {1}:
        return set()
    found = set()
    said = common.run("systemctl", "list-sockets", "--show-types", "--output=json", "--no-pager")
    # the one line of it that is JSON
    rows = next((line for line in common.lines(said) if line.startswith("[")), "")
    for row in json.loads(rows):
        if str(row.get("listen", "")).replace("*", "") == at and (unit := str(row.get("activates") or "")):
            found.add(str(systemd_properties.properties([unit], "ControlGroup")[unit].get("ControlGroup", "")))
    return found - {""}


def body(said: str) -> tuple[str, str]:
    """Status and body of an answer as it came."""
    head, _, rest = said.partition("\r\n\r\n")
    found = re.match(r"HTTP/1\.[01] ([0-9]{3})", head)
    return (found[1], rest) if found else ("", "")
