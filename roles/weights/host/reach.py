"""Where a redirect may lead: judged by the addresses that are connected to afterwards, and no others.

A mirror that is asked for a file could send its visitor to services that only the host itself or its own network
reaches. This file imports nothing of the others: the program around the hub's own client loads it by its path.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

PORTS = {"http": 80, "https": 443}
# nothing that two programs may read in two ways: no user, no escape in the host, no backslash, no control character
_PLAIN = re.compile(
    r"(https?)://([a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(?:[/?#][!-\[\]-~]*)?", re.I
)
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # IPv4 addresses in a network without IPv4 (RFC 6052, 2.1)
_UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out (RFC 4291, 2.4)


NOT_PUBLIC = r"(\S+) is at an address that is not public"
"""A library's error for an address that `only_public` keeps it from."""


class UnsafeRedirect(Exception):
    """A redirect that is not followed; the text says why, and what to do if it is meant."""


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, the port always named."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return f"{scheme}://{(parts.hostname or '').lower()}:{parts.port or PORTS.get(scheme)}"


def is_public_address(address: str) -> bool:
    """Whether an IP address is one that the whole Internet shares, in whichever way it is written."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast and not found.is_reserved
    if inner := found.ipv4_mapped or found.sixtofour:
        return is_public_address(str(inner))
    if found in _TRANSLATED:
        return is_public_address(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
    return found in _UNICAST and found.is_global


def redirect_options(url: str, before: str, declared: frozenset[str]) -> list[str]:
    """curl's options with which a redirect is followed, so that it leads where it was judged.

    Args:
        url: Where it leads.
        before: The address that leads there.
        declared: Origins that the operator has named, wherever they are.

    Raises:
        UnsafeRedirect: it is not followed.
    """
    found = _PLAIN.fullmatch(url)
    if not found:
        raise UnsafeRedirect("it leads to an invalid address")
    if before.lower().startswith("https:") and found[1].lower() == "http":
        raise UnsafeRedirect(f"it leads from https to plain http, to {found[2]}")
    try:
        place, host = origin_of(url), urlsplit(url).hostname or ""
    except ValueError:
        raise UnsafeRedirect("it leads to an invalid address") from None
    if place in declared:
        return []
    port = int(place.rpartition(":")[2])
    proxies = {} if proxy_bypass(host) else getproxies()
    proxy = proxies.get(found[1].lower()) or proxies.get("all")
    try:
        addresses = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        if proxy:  # which knows more names, and connects by itself
            return [f'proxy = "{proxy}"']
        raise UnsafeRedirect(f"it leads to {host}, which has no address: {error}") from None
    for one in addresses:
        if not is_public_address(one) and one not in resolve_declared_servers(declared, port):
            raise UnsafeRedirect(
                f"it leads to {host} at {one}, an address that is not public: if that is meant, name {place} among the "
                "inventory's redirects"
            )
    if proxy:
        return [f'proxy = "{proxy}"']
    there = ",".join(f"[{one}]" if ":" in one else one for one in dict.fromkeys(addresses))
    # asked again, the name could have another address
    return ['noproxy = "*"', *([] if host in addresses else [f'resolve = "{host}:{port}:{there}"'])]


def resolve_declared_servers(declared: frozenset[str], port: int, lookup: Any = None) -> set[str]:
    """Addresses of the declared origins at a port: another name for one of these servers leads nowhere else.

    In a network whose resolver leads all names to one proxy, an index and the files that it lists are one server. A
    declared origin may be anywhere, so control over its name gives an attacker nothing.
    """
    found: set[str] = set()
    for one in declared:
        parts = urlsplit(one)
        if (parts.port or PORTS.get(parts.scheme)) == port:
            with suppress(OSError, UnicodeError):
                rows = (lookup or socket.getaddrinfo)(parts.hostname, port, type=socket.SOCK_STREAM)
                found |= {str(row[4][0]) for row in rows}
    return found


@contextmanager
def only_public(declared: frozenset[str]) -> Iterator[None]:
    """Have this process connect to nothing but public addresses, the declared origins and the proxies.

    A library looks a name up in the moment in which it connects; a name that was judged before may have another address
    by then.
    """
    lookup: Any = socket.getaddrinfo
    named = (*declared, *getproxies().values())
    known = [urlsplit(one if "://" in one else f"http://{one}") for one in named]
    allowed = {(one.hostname, one.port or PORTS.get(one.scheme)) for one in known}

    def guarded(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        found = lookup(host, port, *rest, **options)
        name = host.decode() if isinstance(host, bytes) else str(host)
        foreign = {str(one[4][0]) for one in found if not is_public_address(str(one[4][0]))}
        if (name.lower(), port) not in allowed and foreign - resolve_declared_servers(declared, port, lookup):
            raise socket.gaierror(socket.EAI_NONAME, f"{name} is at an address that is not public")
        return found

    socket.getaddrinfo = guarded
    try:
        yield
    finally:
        socket.getaddrinfo = lookup
