"""What iptables of old has set, as its own program prints it (iptables-save(8)), made into the kernel's newer rules."""

from __future__ import annotations

import shlex
import struct
from collections.abc import Callable
from ipaddress import ip_address, ip_network

from checks.packets.packet import ESTABLISHED, NEW
from checks.packets.ruleset_decoding import (
    ACCEPT,
    DROP,
    INPUT,
    IPV4,
    IPV6,
    OUTPUT,
    POSTROUTING,
    PREROUTING,
    Chain,
    Expression,
    Ruleset,
)
from checks.packets.xt_extensions import MAPS_ADDRESS, MAPS_PORT

HOOKS = {"PREROUTING": PREROUTING, "INPUT": INPUT, "OUTPUT": OUTPUT, "POSTROUTING": POSTROUTING}
# Where a table's chains stand among others (linux/netfilter_ipv4.h).
PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
FAMILIES = {"iptables": IPV4, "ip6tables": IPV6}
STATES = {"NEW": NEW, "ESTABLISHED": ESTABLISHED, "RELATED": 4, "INVALID": 1, "UNTRACKED": 64}
ENDS = {"ACCEPT": ACCEPT, "DROP": DROP, "RETURN": -5}
TARGETS = ("DNAT", "REDIRECT", "TPROXY", "REJECT", "SNAT", "MASQUERADE")
# What lets a packet go on.
OTHERS = ("LOG", "NFLOG", "MARK", "CONNMARK", "CHECKSUM", "TCPMSS", "CT", "NOTRACK", "TRACE", "DSCP", "TOS", "SECMARK")
JUMP = -3


def add_saved_rules(rules: Ruleset, saved: dict[str, str | None]) -> None:
    """Add what older programs have set to what is known."""
    for program, text in saved.items():
        family, table = FAMILIES.get(program, IPV4), ""
        for line in (text or "").splitlines():
            if line.startswith("*"):
                table = line[1:].strip()
            elif line.startswith(":"):
                name, policy = line[1:].split()[:2]
                made = Chain(
                    family, f"{table} of {program}-legacy", name, HOOKS.get(name, -1), PRIORITIES.get(table, 0)
                )
                made.policy = DROP if policy == "DROP" else ACCEPT
                rules.chains[family, made.table, name] = made
            elif line.startswith("-A "):
                words = shlex.split(line)[1:]
                chain = rules.chains.get((family, f"{table} of {program}-legacy", words[0]))
                if chain:
                    chain.rules.append(_rule(words[1:], family))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def _data(value: bytes) -> bytes:
    return _attribute(1, value)


def _number(value: int) -> bytes:
    return struct.pack(">I", value)


def _match(name: str, info: bytes) -> Expression:
    return Expression("match", {1: name.encode(), 3: info})


def _address(value: str, start: int, inverted: bool) -> list[Expression]:
    network = ip_network(value, strict=False)
    size = len(network.network_address.packed)
    mask = network.netmask.packed
    return [
        Expression("payload", {1: _number(1), 2: _number(1), 3: _number(start), 4: _number(size)}),
        Expression("bitwise", {1: _number(1), 2: _number(1), 3: _number(size), 4: _data(mask), 5: _data(bytes(size))}),
        Expression("cmp", {1: _number(1), 2: _number(inverted), 3: _data(network.network_address.packed)}),
    ]


def _interface(value: str, key: int, inverted: bool) -> list[Expression]:
    name = value[:-1].encode() if value.endswith("+") else value.encode().ljust(16, b"\0")
    meta = Expression("meta", {1: _number(1), 2: _number(key)})
    return [meta, Expression("cmp", {1: _number(1), 2: _number(inverted), 3: _data(name)})]


def _ports(value: str, source: bool, inverted: bool) -> list[Expression]:
    first, _, last = value.partition(":")
    own, every = (int(first or 0), int((last or "65535") if ":" in value else first)), (0, 65535)
    mine, theirs = (own, every) if source else (every, own)
    return [_match("tcp", struct.pack("=HHHHBBBB", *mine, *theirs, 0, 0, 0, (1 if source else 2) if inverted else 0))]


def _several(value: str, kind: int, inverted: bool) -> list[Expression]:
    numbers, flags = [], []
    for part in value.split(","):
        first, _, last = part.partition(":")
        numbers += [int(first), *([int(last)] if last else [])]
        flags += [int(bool(last)), *([0] if last else [])]
    count = len(numbers)
    numbers, flags = (numbers + [0] * 15)[:15], (flags + [0] * 15)[:15]
    return [_match("multiport", struct.pack("=BB15H15BB", kind, count, *numbers, *flags, inverted))]


def _states(value: str, inverted: bool) -> list[Expression]:
    bits = sum(STATES.get(one, 0) for one in value.split(","))
    return [_match("state", struct.pack("=I", ~bits & 0xFFFF if inverted else bits))]


def _local(value: str, inverted: bool) -> list[Expression]:
    return [_match("addrtype" if value == "LOCAL" else value, struct.pack("=HHI", 0, 4, inverted))]


def _protocol(value: str, inverted: bool) -> list[Expression]:
    return [] if (value in ("tcp", "6", "all")) != inverted else [_match("udp", b"")]


def _target(name: str, options: dict[str, str], family: int) -> Expression:
    if name in ENDS:
        return _verdict(ENDS[name], "")
    if name in OTHERS:
        return Expression("log", {})
    if name not in TARGETS:
        return _verdict(JUMP, name)
    where = options.get("--to-destination", "")
    address, port = where, options.get("--to-ports", options.get("--on-port", ""))
    if "]" in where or (family == IPV4 and ":" in where):
        address, _, port = where.rpartition(":")
    first = port.partition("-")[0]
    number = int(first) if first.isdecimal() else 0
    if name == "TPROXY":
        return Expression("target", {1: name.encode(), 3: bytes(24) + struct.pack(">H", number) + bytes(6)})
    flags = (MAPS_ADDRESS if address else 0) | (MAPS_PORT if number else 0)
    raw = ip_address(address.partition("-")[0].strip("[]")).packed.ljust(16, b"\0") if address else bytes(16)
    info = struct.pack("=I", flags) + raw * 2 + struct.pack(">HHH", number, number, 0) + bytes(2)
    return Expression("target", {1: name.encode(), 3: info})


def _verdict(code: int, chain: str) -> Expression:
    inner = _attribute(1, struct.pack(">i", code)) + (_attribute(2, chain.encode() + b"\0") if chain else b"")
    return Expression("immediate", {1: _number(0), 2: _attribute(2, inner)})


OPTIONS: dict[str, Callable[[str, int, bool], list[Expression]]] = {
    "-p": lambda value, family, inverted: _protocol(value, inverted),
    "-s": lambda value, family, inverted: _address(value, 12 if family == IPV4 else 8, inverted),
    "-d": lambda value, family, inverted: _address(value, 16 if family == IPV4 else 24, inverted),
    "-i": lambda value, family, inverted: _interface(value, 6, inverted),
    "-o": lambda value, family, inverted: _interface(value, 7, inverted),
    "--sport": lambda value, family, inverted: _ports(value, source=True, inverted=inverted),
    "--dport": lambda value, family, inverted: _ports(value, source=False, inverted=inverted),
    "--sports": lambda value, family, inverted: _several(value, 0, inverted),
    "--dports": lambda value, family, inverted: _several(value, 1, inverted),
    "--ports": lambda value, family, inverted: _several(value, 2, inverted),
    "--ctstate": lambda value, family, inverted: _states(value, inverted),
    "--state": lambda value, family, inverted: _states(value, inverted),
    "--dst-type": lambda value, family, inverted: _local(value, inverted),
}
# Options of what always holds, or belongs to the target.
PLAIN = ("-m", "--comment", "--limit", "--limit-burst", "--tcp-flags", "--reject-with", "--log-prefix", "--log-level")


def _rule(words: list[str], family: int) -> tuple[Expression, ...]:
    found: list[Expression] = []
    options: dict[str, str] = {}
    target, inverted, at = "", False, 0
    while at < len(words):
        word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        if word == "!":
            inverted, at = True, at + 1
            continue
        if word in ("-j", "-g"):
            target = value
        elif word in OPTIONS:
            found += OPTIONS[word](value, family, inverted)
        elif word.startswith("--to-") or word == "--on-port":
            options[word] = value
        elif word.startswith("-") and word not in PLAIN:
            # what is not known here
            found.append(_match(word, b""))
        inverted, at = False, at + (2 if word.startswith("-") else 1)
    return (*found, _target(target, options, family)) if target else tuple(found)
