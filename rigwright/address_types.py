"""The small types of where things are on networks, each with its rule."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

# RFC 1035, 2.3.4, and RFC 1123, 2.1; no host has an underscore there, but one of ssh's own configuration may
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LETTER = re.compile(r"[A-Za-z0-9]")
_LONGEST = 253  # characters of a name
_BROADCAST = "255.255.255.255"
# USER@HOST:PORT, of which an inventory has each in a key of its own
_TARGET = re.compile(r"(?:([^@]*)@)?(?:\[([^\]]*)\]|([^:@\[\]]*))(?::([0-9]+))?")
HOST = "a host name or an IP address"
# a port in an address: 1 to 65535
PORT = r"(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
_ORIGIN = rf"[A-Za-z0-9][A-Za-z0-9.-]*{PORT}"
# Python takes any text for one, a line's end among it, and keeps it; nginx, which would be given it, takes none.
ZONE = "without a zone, which begins with %"
_WITH_PORT = "(port up to 65535)"


def canonical_host(value: str) -> str:
    """The one spelling of a host's name or address: those of one host are equal.

    Raises:
        ValueError: it can be neither; the text is what is allowed.
    """
    try:
        found = ip_address(value)
    except ValueError:
        return _name(value)
    if not re.fullmatch(r"[^%]*(?:%[A-Za-z0-9._-]{1,15})?", value):
        raise ValueError(f"{HOST}: only an interface name may follow %")
    if found.is_unspecified or found.is_multicast or str(found) == _BROADCAST:
        raise ValueError(f"{HOST}: {found} is not a single host's address")
    return str(getattr(found, "ipv4_mapped", None) or found)


def _name(value: str) -> str:
    bare = value.removesuffix(".")
    # inet_aton, and with it ssh, takes fewer numbers, octal and hexadecimal ones for an address, too
    if re.fullmatch(r"[0-9]+|0[xX][0-9A-Fa-f]*", bare.rpartition(".")[2]):
        raise ValueError(f"{HOST}: four numbers up to 255 make an IPv4 address")
    if not 0 < len(bare) <= _LONGEST or not all(map(_LABEL.fullmatch, bare.split("."))) or not _LETTER.search(bare):
        raise ValueError(HOST)
    return bare.lower()


def _ssh_host(value: str) -> str:
    try:
        canonical_host(value)
    except ValueError:
        if hint := describe_url_host(value):
            raise ValueError(f"{HOST} alone{hint}") from None
        if not (found := _TARGET.fullmatch(value)):
            raise
        user, six, name, port = found.groups()
        bare = six or name
        canonical_host(bare)
        beside = [f"ssh_user = {user!r}"] if user else []
        beside += [f"ssh_port = {port}"] if port else []
        also = f" with {' and '.join(beside)}" if beside else ""
        raise ValueError(f"{HOST} only; did you mean {bare!r}{also}?") from None
    return value


LONGEST_URL = 2048
"""Characters; nginx has 8 KiB for a request's first line (large_client_header_buffers), and some proxies 2 KiB."""
_SEGMENT = r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._~+@%=&-]+"


def refuse_malformed_url(value: str, *, path: bool = True, query: bool = False) -> None:
    """Refuse an address on the web that is not http(s), leads to no host, or has a part that its use does not have.

    Args:
        value: The address.
        path: Whether it may have a path.
        query: Whether it may have a query.

    Raises:
        ValueError: it is refused; the text says which parts it may not have, or what is allowed.
    """
    rule = f"an http(s) URL {_WITH_PORT}" if path else f"an http(s) URL of a host, without a path {_WITH_PORT}"
    if len(value) > LONGEST_URL:
        raise ValueError(f"{rule}, of at most {LONGEST_URL} characters")
    bare, fragment, _ = value.partition("#")
    bare, asked, _ = bare.partition("?")
    scheme, _, rest = bare.partition("://")
    host, slash, below = rest.partition("/")
    faults = [
        fault
        for is_faulty, fault in (
            ("@" in host, "user and password"),
            (asked and not query, "a query (?...)"),
            (fragment, "a fragment (#...)"),
            ("//" in slash + below, "a doubled slash (//)"),
            (re.search(r"(?:\A|/)\.\.?(?:/|\Z)", below), "the folders . and .."),
            (
                re.search(r"%(?![0-9A-Fa-f]{2})|%[01][0-9A-Fa-f]|%7[Ff]", rest),
                "a % that encodes no printable character",
            ),
        )
        if is_faulty
    ]
    if scheme in ("http", "https") and faults:
        raise ValueError(f"{rule}, without {' and '.join(faults)}")
    folders = rf"(?:/|(?:/{_SEGMENT})*/?)" if path else ""
    words = r"(?:\?[A-Za-z0-9._~/?=&+@%,:;!-]*)?" if query else ""
    if scheme in ("http", "https") and not host:
        raise ValueError(f"{rule}: it names no host")
    if not re.fullmatch(rf"https?://{_ORIGIN}{folders}{words}", value):
        raise ValueError(rule)
    try:
        canonical_host(urlsplit(value).hostname or "")
    except ValueError as error:
        raise ValueError(f"{rule}: {error}") from None


def _http_url(value: str) -> str:
    refuse_malformed_url(value)
    return value


def _http_url_with_query(value: str) -> str:
    refuse_malformed_url(value, query=True)
    return value


def _origin(value: str) -> str:
    refuse_malformed_url(value, path=False)
    return value


def _source(value: str) -> str:
    rule = "index:PROJECT, MIRROR:PATH or "
    if value.startswith(("http:", "https:")):
        try:
            refuse_malformed_url(value, query=True)
        except ValueError as error:
            raise ValueError(f"{rule}{error}") from None
        if urlsplit(value).path:
            return value
    elif re.fullmatch(rf"[a-z0-9][a-z0-9-]{{0,47}}:{_PATH}", value) and len(value) <= LONGEST_URL:
        return value
    raise ValueError(f"{rule}an http(s) URL {_WITH_PORT}")


def describe_url_host(value: str) -> str:
    """The hint for an address of the web in the place of a host: the host in it. Empty for another text."""
    with suppress(ValueError):
        if re.match(r"[a-z]{2,8}://", value) and (host := urlsplit(value).hostname):
            return f"; did you mean {host!r}?"
    return ""


def _address(value: str) -> str:
    try:
        address = ip_address(value)
    except ValueError:
        raise ValueError(f"an IP address of the host{describe_url_host(value)}") from None
    if "%" in value:
        raise ValueError(f"an IP address of the host, {ZONE}")
    if address.is_unspecified or address.is_multicast:
        raise ValueError("an IP address of the host, a single one")
    return str(address)


def _cidr(value: str) -> str:
    if "%" in value:
        raise ValueError(f"a network, {ZONE}")
    try:
        found = ip_network(value)
    except ValueError:
        pass
    else:
        if found.num_addresses == 1 and found.network_address.is_unspecified:
            # of the one address that no client has
            raise ValueError(f"a network: {found.network_address}/0 allows all addresses, {value} allows none")
        return str(found)
    try:
        # an address inside of a network: one of both was meant
        meant = f"{ip_network(value, strict=False)}, or {ip_network(value.partition('/')[0])} for one address"
    except ValueError:
        meant = "such as 10.0.0.0/24"
    raise ValueError(f"a network, {meant}")


# As ssh is given it: of a name in its configuration the spelling counts.
SshHost = Annotated[str, AfterValidator(_ssh_host)]
TcpPort = Annotated[int, Field(ge=1, le=65535, strict=True)]
# Below 1024 a service without capabilities cannot listen.
Port = Annotated[int, Field(ge=1024, le=65535, strict=True)]
Address = Annotated[str, AfterValidator(_address)]
Cidr = Annotated[str, AfterValidator(_cidr)]
# One type of address on the web, and what few uses have more or less: queries, no path.
HttpUrl = Annotated[str, AfterValidator(_http_url)]
HttpUrlWithQuery = Annotated[str, AfterValidator(_http_url_with_query)]
Origin = Annotated[str, AfterValidator(_origin)]
# index:PROJECT, MIRROR:PATH (a mirror is a Name) or an address
_PATH = r"(?:(?!\.\.?(?:/|\Z))[A-Za-z0-9_~][A-Za-z0-9._~+@-]*)(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._~+@-]+)*"
Source = Annotated[str, AfterValidator(_source)]


def _host_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|\.[A-Za-z0-9][A-Za-z0-9.-]*", value):
        raise ValueError("a host name, or a domain with a leading dot")
    canonical_host(value.removeprefix("."))
    return value


HostName = Annotated[str, AfterValidator(_host_name)]
