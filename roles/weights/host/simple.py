"""A package index's page of a project's files: PEP 691 (JSON) and PEP 503 (HTML).

The text is untrusted. The result is an address, which is judged before it is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from email.message import Message
from html import unescape
from urllib.parse import unquote, urldefrag, urljoin

from .answers import strip_unprintable
from .spec import FetchRefused

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
JSON = "application/vnd.pypi.simple.v1+json"
HTML = ("application/vnd.pypi.simple.v1+html", "text/html")
# those in which the characters of addresses are the same bytes
CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1")
# not html.parser: a page can be made that takes it minutes a megabyte. A value with < or > in it has these escaped.
_TAG = re.compile(r"<(a|base)\s([^<>]{1,8192})>", re.IGNORECASE)
_HREF = re.compile(r"""(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_SHA256 = re.compile(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)")


@dataclass(frozen=True)
class IndexFile:
    """A file of a project."""

    url: str
    sha256: str
    """The index's SHA-256; empty where it has none."""


def parse_index_page(content_type: str, body: bytes, url: str, names: Collection[str]) -> dict[str, list[IndexFile]]:
    """The files with these names that a page lists.

    Args:
        content_type: The answer's header.
        body: Its bytes.
        url: Where it was had in the end; links may be relative to that.
        names: Of the files that are sought.

    Raises:
        FetchRefused: it is no page of an index.
    """
    kind, text = _decode_page(content_type, body)
    found: dict[str, list[IndexFile]] = {}
    for name, base, link, sha256 in (_parse_json_page if kind == JSON else _parse_html_page)(text, url):
        if name in names:
            found.setdefault(name, []).append(IndexFile(_join_url(base, link), sha256))
    return found


def _decode_page(content_type: str, body: bytes) -> tuple[str, str]:
    header = Message()
    header["Content-Type"] = content_type
    try:
        kind, charset = header.get_content_type(), header.get_content_charset("utf-8")
    except ValueError:
        # of a parameter in parts, numbered with more digits than a number may have (RFC 2231, 3)
        raise FetchRefused("it answers with a type that cannot be read") from None
    if not content_type or kind not in (JSON, *HTML):
        said = strip_unprintable(kind) if content_type else "no type"
        raise FetchRefused(f"it answers with {said}, which is not a package index page")
    if charset not in CHARSETS:
        raise FetchRefused(f"its page is in the character set {strip_unprintable(charset)}, which no index has")
    try:
        return kind, body.decode("utf-8" if kind == JSON else charset)
    except UnicodeDecodeError:
        raise FetchRefused(f"its page is not in the character set that it says, {charset}") from None


def _parse_json_page(text: str, url: str) -> Iterator[tuple[str, str, str, str]]:
    """File, base, address and SHA-256 of each row that has name and address."""
    try:
        page = json.loads(text)
        version, rows = str(page["meta"]["api-version"]), page["files"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FetchRefused("its page is not a file list") from None
    if not version.startswith("1."):
        raise FetchRefused(f"its page is of version {version[:20]!r} of the interface, and 1 is known")
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        name, link, hashes = row.get("filename"), row.get("url"), row.get("hashes")
        said = hashes.get("sha256") if isinstance(hashes, dict) else ""
        if isinstance(name, str) and isinstance(link, str):
            # an invalid value may not be passed on
            digest = said.lower() if isinstance(said, str) else ""
            yield name, url, link, digest if re.fullmatch("[0-9a-f]{64}", digest) else ""


def _parse_html_page(text: str, url: str) -> Iterator[tuple[str, str, str, str]]:
    """The same of each link; the file is what its address ends in, as PEP 503 has it."""
    base = ""
    for tag in _TAG.finditer(text):
        found = _HREF.search(tag[2])
        if not found:
            continue
        link = unescape(found[1] or found[2] or found[3] or "").strip()
        if tag[1].lower() == "base":
            # the first alone counts (HTML, "the base element"); each from the one before, a page could take hours
            base = base or _join_url(url, link)
            continue
        whole, _, fragment = link.partition("#")
        said = _SHA256.search(fragment)
        yield unquote(whole.partition("?")[0].rpartition("/")[2]), base or url, whole, said[1].lower() if said else ""


def _join_url(url: str, link: str) -> str:
    try:
        return urldefrag(urljoin(url, link))[0]
    except ValueError:
        raise FetchRefused("its page has a link that is not a URL") from None
