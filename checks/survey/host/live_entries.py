"""Entries of the fingerprint that are the kernel's: mounts, rules of packets, listeners, modules, parameters."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from checks.survey.host import common, mount_table, network_sockets
from checks.survey.host.host_entry import LONGEST, HostEntry, text_entry
from checks.survey.host.process_entries import CONTAINERS, group_of, program_of, unit_in, unit_of

PROC, SYS = "/proc", "/sys"  # a test has folders for them
MOST_ROWS = 20_000
LIMIT = 10  # seconds for a program
BRIDGE, NETWORK = r"(?P<bridge>docker0|br-[0-9a-f]{12})", r"(?P<network>[0-9.]+/(?:1[2-9]|2[0-9]))"
MASQUERADE = tuple(
    re.compile(one)
    for one in (
        rf'oifname != "{BRIDGE}" ip saddr {NETWORK} counter (?:masquerade|xt target "MASQUERADE")',
        rf'ip saddr {NETWORK} oifname != "{BRIDGE}" counter (?:masquerade|xt target "MASQUERADE")',
        rf"-A POSTROUTING -s {NETWORK} ! -o {BRIDGE} -j MASQUERADE",
    )
)
"""The rule by which a network of containers reaches others; an entry of its own, in a chain with other rules."""
PARAMETERS = (
    *("kernel.yama.ptrace_scope", "kernel.kptr_restrict", "kernel.dmesg_restrict", "kernel.unprivileged_userns_clone"),
    *("kernel.unprivileged_bpf_disabled", "kernel.apparmor_restrict_unprivileged_userns", "kernel.modules_disabled"),
    *("kernel.kexec_load_disabled", "kernel.sysrq", "kernel.core_pattern", "kernel.core_pipe_limit", "kernel.modprobe"),
    *("kernel.hotplug", "kernel.poweroff_cmd", "kernel.randomize_va_space", "kernel.perf_event_paranoid"),
    *("kernel.usermodehelper.bset", "kernel.usermodehelper.inheritable", "kernel.io_uring_disabled", "kernel.panic"),
    *("kernel.panic_on_oops", "kernel.numa_balancing", "kernel.firmware_config.force_sysfs_fallback"),
    *("fs.protected_hardlinks", "fs.protected_symlinks", "fs.protected_fifos", "fs.protected_regular"),
    *("fs.suid_dumpable", "fs.binfmt_misc.status", "vm.overcommit_memory", "vm.overcommit_ratio", "vm.swappiness"),
    *("vm.mmap_min_addr", "vm.nr_hugepages", "vm.panic_on_oom", "vm.oom_kill_allocating_task", "vm.zone_reclaim_mode"),
    *("user.max_user_namespaces", "net.ipv4.ip_forward", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.ip_local_port_range", "net.ipv4.ip_nonlocal_bind", "net.ipv4.tcp_syncookies"),
    *(
        f"net.ipv4.conf.{which}.{name}"
        for which in ("all", "default")
        for name in ("rp_filter", "accept_redirects", "accept_source_route", "send_redirects", "route_localnet")
    ),
    *("vm.unprivileged_userfaultfd", "dev.tty.legacy_tiocsti", "dev.tty.ldisc_autoload", "kernel.ftrace_enabled"),
    *("kernel.apparmor_restrict_unprivileged_unconfined", "net.ipv4.conf.all.accept_local"),
    *("net.ipv6.conf.default.accept_ra", "net.ipv6.conf.default.accept_redirects", "net.ipv6.conf.all.proxy_ndp"),
    *("net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.proxy_arp"),
    *("net.ipv6.conf.all.forwarding", "net.ipv6.conf.all.accept_ra", "net.ipv6.conf.all.accept_redirects"),
    *("net.ipv6.conf.all.disable_ipv6", "net.core.bpf_jit_enable", "net.core.bpf_jit_harden", "net.core.somaxconn"),
)
"""Parameters of the kernel that decide about access, isolation or memory (Documentation/admin-guide/sysctl)."""
NOT_INSTALLED = 127
# linux/netfilter/nfnetlink.h, nf_tables.h
NETLINK_NETFILTER, NFTABLES = 12, 10
GETCHAIN, GETRULE = 4, 7
CHAIN_TABLE, CHAIN_NAME, CHAIN_WORDS = 1, 3, {4: "hook", 5: "policy", 7: "type"}
RULE_TABLE, RULE_CHAIN, RULE_EXPRESSIONS = 1, 2, 4
EXPRESSION_NAME, EXPRESSION_DATA = 1, 2
FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
UDP_TABLES = (f"{PROC}/1/net/udp", f"{PROC}/1/net/udp6")
UNCONNECTED = "07"
OURS = re.compile(r"rigwright[-_][^/]*[.](?:service|scope|socket)|rw-check-[^/]*[.]service")


def _names(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))[:MOST_ROWS]
    return []


def mounts(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per file system that is mounted."""
    rows = mount_table.parse_mounts(common.read(f"{PROC}/1/mountinfo", mount_table.MOST) or "")
    for mount in islice(rows, MOST_ROWS):
        # systemd hides files behind deleted ones, whose names are by chance
        part = "" if mount.root == "/" else f" {mount.root}"
        part = " (a deleted file)" if mount.root.endswith("//deleted") else part
        options = ",".join(sorted({*mount.options, *mount.system_options.split(",")}))
        yield text_entry(kind, f"mount {mount.point}", f"{mount.kind} {mount.source}{part} {options}")


def binary_formats(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Formats of programs that the kernel starts an interpreter for."""
    folder = f"{PROC}/sys/fs/binfmt_misc"
    for name in _names(folder):
        if name not in ("register", "status"):
            yield text_entry(kind, f"format {name}", (common.read(f"{folder}/{name}") or "").strip())


def kernel_command_line(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Words that the kernel was started with, without the one that names its own file."""
    words = [
        word
        for word in (common.read(f"{PROC}/cmdline") or "").split()
        if not word.startswith(("BOOT_IMAGE=", "initrd=", "BOOTIF="))
    ]
    yield text_entry(kind, "command line of the running kernel", " ".join(words))


def kernel_parameters(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Values of parameters in force."""
    rows = []
    for name in PARAMETERS:
        value = common.read(f"{PROC}/sys/{name.replace('.', '/')}")
        if value is not None:
            rows.append(f"{name} = {' '.join(value.split())}\n")
    yield text_entry(kind, "parameters in force", "".join(rows))


def foreign_modules(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Loaded modules that are not the kernel's own, by its taints."""
    for line in common.lines(common.read(f"{PROC}/modules") or ""):
        if taints := re.search(r"\(([A-Z]+)\)$", line):
            yield HostEntry(kind, f"loaded module {line.split()[0]}", f"taints {taints[1]}")


def security_modules(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Security modules in force, and profiles of AppArmor with their modes."""
    folder = f"{SYS}/kernel/security"
    for name in ("lsm", "lockdown", "apparmor/.access"):
        if text := common.read(f"{folder}/{name}"):
            yield text_entry(kind, f"security module setting {name}", text.strip())
    profiles = common.lines(common.read(f"{folder}/apparmor/profiles") or "")
    profiles = sorted(one for one in profiles if not one.startswith(("snap.", "snap-update-ns.", "docker-")))
    if profiles:
        yield text_entry(kind, "profiles of AppArmor in force", "\n".join(profiles) + "\n")
    if enforcing := common.read(f"{SYS}/fs/selinux/enforce"):
        yield HostEntry(kind, "SELinux enforcing", enforcing.strip())


def packet_filters(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per chain and set of nftables, and per table of iptables' older form."""
    status, out, err = common.ended("nft", "--stateless", "list", "ruleset", limit=LIMIT)
    if status == NOT_INSTALLED:
        yield from kernel_chains(kind)
    elif status:
        yield text_entry(kind, "rules of nftables (not readable)", err.strip()[:LONGEST])
    else:
        yield from nft_blocks(kind, out)
    for table, program in (("ip_tables_names", "iptables"), ("ip6_tables_names", "ip6tables")):
        if (common.read(f"{PROC}/1/net/{table}") or "").strip():
            status, out, err = common.ended(f"{program}-legacy-save", limit=LIMIT)
            yield from iptables_blocks(kind, program, out if status == 0 else f"*(not readable)\n{err.strip()[:200]}\n")


def nft_blocks(kind: str, text: str) -> Iterator[HostEntry]:
    """Entries of what `nft list ruleset` prints."""
    table, block, lines = "", "", list[str]()
    for line in common.lines(text):
        if line.startswith("table "):
            table = line.removesuffix(" {")
            yield HostEntry(kind, table, "table")
        elif line.startswith("\t") and not line.startswith("\t\t") and line.endswith("{"):
            block, lines = line.strip().removesuffix(" {"), []
        elif line == "\t}":
            yield from _chain_entries(kind, f"{table} {block}", lines)
            block = ""
        elif block:
            # counters are no part of a rule
            lines.append(re.sub(r"\bcounter packets \d+ bytes \d+", "counter", line.strip()))


def _chain_entries(kind: str, key: str, rules: list[str]) -> Iterator[HostEntry]:
    """A chain's rules, and its rules of containers' networks each."""
    kept = []
    for rule in rules:
        if matched := next(filter(None, (one.fullmatch(rule) for one in MASQUERADE)), None):
            yield HostEntry(kind, f"{key} masquerade {matched['bridge']} {matched['network']}", "")
        else:
            kept.append(rule)
    yield text_entry(kind, key, "\n".join(kept))


def kernel_chains(kind: str) -> Iterator[HostEntry]:
    """The same of a host without nft(8): names of chains, and expressions of their rules as the kernel has them."""
    chains: dict[str, list[str]] = {}
    for family, raw in _netfilter(GETCHAIN):
        found = dict(network_sockets.attributes(raw))
        lines = chains.setdefault(_chain_key(family, found[CHAIN_TABLE], found[CHAIN_NAME]), [])
        lines += [f"{word} {found[number].hex()}" for number, word in CHAIN_WORDS.items() if number in found]
    for family, raw in _netfilter(GETRULE):
        found = dict(network_sockets.attributes(raw))
        words = []
        for _, expression in network_sockets.attributes(found.get(RULE_EXPRESSIONS, b"")):
            parts = dict(network_sockets.attributes(expression))
            name = parts.get(EXPRESSION_NAME, b"").rstrip(b"\0").decode(errors="replace")
            words.append(name if name == "counter" else f"{name} {parts.get(EXPRESSION_DATA, b'').hex()}")
        chains.setdefault(_chain_key(family, found[RULE_TABLE], found[RULE_CHAIN]), []).append(", ".join(words))
    for key, lines in chains.items():
        yield text_entry(kind, key, "\n".join(lines))


def _chain_key(family: int, table: bytes, chain: bytes) -> str:
    names = (one.rstrip(b"\0").decode(errors="replace") for one in (table, chain))
    return "table {} {} chain {}".format(FAMILIES.get(family, family), *names)


def _netfilter(question: int) -> Iterator[tuple[int, bytes]]:
    """Family and attributes of the kernel's chains or rules; nothing where it has no nftables."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as asking:
        asking.settimeout(LIMIT)
        content = struct.pack("=BBH", 0, 0, 0)
        asking.send(
            struct.pack("=IHHII", 16 + len(content), NFTABLES << 8 | question, network_sockets.DUMP, 1, 0) + content
        )
        for _ in range(MOST_ROWS):
            for answer, one in network_sockets.messages(asking.recv(1 << 18)):
                if answer in (network_sockets.DONE, network_sockets.FAILED):
                    return
                yield one[0], one[4:]


def iptables_blocks(kind: str, program: str, text: str) -> Iterator[HostEntry]:
    """Entries of what iptables-save(8) prints."""
    table, chains = "", dict[str, list[str]]()
    for line in [*common.lines(text), "*"]:
        if line.startswith("*"):
            for chain, rules in chains.items():
                yield from _chain_entries(kind, f"{program} table {table} chain {chain}", rules)
            table, chains = line[1:], {}
            if table.startswith("("):
                yield HostEntry(kind, f"{program} {table}", "")
        elif line.startswith(":"):
            name, policy = [*line[1:].split(), "", ""][:2]
            chains.setdefault(name, []).append(f"policy {policy}")
        elif line.startswith("-A "):
            chains.setdefault(line.split(" ")[1], []).append(line)


def _output(*words: str) -> str:
    return common.ended(*words, limit=LIMIT)[1]


def traffic_programs(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Rules and routes that other programs have set, and programs that see an interface's packets."""
    for family in ("-4", "-6"):
        out = _output("ip", family, "-o", "rule", "show")
        for line in common.lines(out)[:MOST_ROWS]:
            number, rule = (*" ".join(line.split()).split(": ", 1), "")[:2]
            yield text_entry(kind, f"routing rule {family[1]} {number}", rule)
        out = _output("ip", family, "-o", "route", "show", "table", "all")
        for line in sorted(" ".join(one.split()) for one in common.lines(out)[:MOST_ROWS]):
            if not re.search(r" proto (?:kernel|dhcp|ra)\b", line):
                yield text_entry(kind, f"route {family[1]} {line}"[:LONGEST], "route")
    for family in ("-4", "-6"):
        for line in common.lines(_output("ip", family, "-o", "neigh", "show", "nud", "permanent"))[:MOST_ROWS]:
            yield text_entry(kind, f"permanent neighbour {' '.join(line.split())}"[:LONGEST], "neighbour")
    for line in common.lines(_output("ip", "-o", "address", "show"))[:MOST_ROWS]:
        words = line.partition("\\")[0].split()
        # a server of addresses, a router or the kernel gives those that are dynamic or name a protocol
        if len(words) > 3 and "dynamic" not in words and "proto" not in words:
            yield text_entry(kind, f"address {words[1]} {words[3]}"[:LONGEST], " ".join(words[4:]))
    for line in common.lines(_output("tc", "qdisc", "show"))[:MOST_ROWS]:
        # the kernel's own queues have no handle
        if not re.match(r"qdisc \S+ 0: ", line):
            yield text_entry(kind, f"queue {' '.join(line.split())}"[:LONGEST], "queue")
    yield from _packet_sockets(kind)
    out = _output("ip", "-d", "-o", "link", "show")
    for line in common.lines(out)[:MOST_ROWS]:
        if "prog/xdp" in line:
            name = line.split(": ")[1] if line.count(": ") > 1 else "?"
            yield HostEntry(kind, f"program at interface {name}", "xdp")


def _packet_sockets(kind: str) -> Iterator[HostEntry]:
    """A row per program that reads packets of interfaces past the rules for them (packet(7))."""
    rows = (line.split() for line in common.lines(common.read(f"{PROC}/1/net/packet") or "")[1:MOST_ROWS])
    inodes = {int(words[8]) for words in rows if len(words) > 8 and words[8].isdecimal()}
    holders = network_sockets.holders(inodes) if inodes else {}
    pids = {pid for inode in inodes for pid in holders.get(inode, set())}
    for name in sorted({f"{program_of(pid)} of {unit_of(pid)}" for pid in pids}):
        yield text_entry(kind, f"packet socket of {name}"[:LONGEST], "socket")


def listeners(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per listening socket, with its program and unit."""
    low, high = _ephemeral_ports()
    rows = [("tcp", local, inode) for local, _, _, inode in network_sockets.rows(network_sockets.LISTENING)]
    for table in UDP_TABLES:
        for line in common.lines(common.read(table, network_sockets.MOST) or "")[1:MOST_ROWS]:
            words = line.split()
            if len(words) > 9 and words[3] == UNCONNECTED:
                rows.append(("udp", words[1], int(words[9])))
    holders = network_sockets.holders({inode for _, _, inode in rows})
    found: dict[str, set[str]] = {}
    ours: set[str] = set()
    for protocol, local, inode in rows:
        address, port = network_sockets.place(local)
        shown = "ephemeral" if protocol == "udp" and low <= port <= high else str(port)
        key = f"{protocol} {f'[{address}]' if ':' in address else address}:{shown}"
        pids = holders.get(inode, set())
        words_ = {f"{program_of(pid)} of {unit_of(pid)}" for pid in pids} or {"no process"}
        found.setdefault(key, set()).update(words_)
        if pids and all(OURS.fullmatch(unit_of(pid)) for pid in pids):
            ours.add(key)
    for key, programs in sorted(found.items()):
        entry = text_entry(kind, key, "; ".join(sorted(programs)))
        entry.origin = "rigwright" if key in ours else ""
        yield entry


def _ephemeral_ports() -> tuple[int, int]:
    words = (common.read(f"{PROC}/sys/net/ipv4/ip_local_port_range") or "").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (32768, 60999)


def slice_processes(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Control groups with processes in Rigwright's slices without a unit of Rigwright's."""
    top = f"{SYS}/fs/cgroup"
    waiting = [name for name in _names(top) if name.startswith("rigwright")]
    while waiting:
        path = waiting.pop()
        if OURS.search(path):
            continue
        pids = (common.read(f"{top}/{path}/cgroup.procs") or "").split()
        if pids:
            yield text_entry(kind, f"processes in {path}", "; ".join(sorted({program_of(pid) for pid in pids})))
        waiting += [f"{path}/{name}" for name in _names(f"{top}/{path}") if os.path.isdir(f"{top}/{path}/{name}")]


def service_programs(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Programs of root's services outside the folders of packages; containers and logins are other classes'."""
    found = set()
    for pid in _names(PROC):
        if pid.isdecimal():
            with suppress(OSError):
                if os.stat(f"{PROC}/{pid}").st_uid == 0 and (program := program_of(pid)) != "the kernel":
                    group = group_of(pid)
                    is_foreign = group.startswith("/user.slice/") or CONTAINERS.match(group)
                    usual = program.startswith(("/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/libexec/"))
                    if not usual and not is_foreign and not OURS.fullmatch(unit_in(group)):
                        found.add((program, group.rpartition("/")[2]))
    for program, unit in sorted(found):
        yield text_entry(kind, f"{program} in {unit}", "runs as root")


Reader = Callable[[str, dict[str, Any]], Iterable[HostEntry]]
READERS: dict[str, Reader] = {
    "mounts": mounts,
    "binary_formats": binary_formats,
    "kernel_command_line": kernel_command_line,
    "kernel_parameters": kernel_parameters,
    "foreign_modules": foreign_modules,
    "security_modules": security_modules,
    "packet_filters": packet_filters,
    "traffic_programs": traffic_programs,
    "listeners": listeners,
    "slice_processes": slice_processes,
    "service_programs": service_programs,
}
