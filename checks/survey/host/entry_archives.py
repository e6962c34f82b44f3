"""Archives of installed packages: the versions in the lists of declared sources whose signature holds.

apt verifies a list when it fetches it. Here the list is compared with its release file, and that file's signature with
the keys of its source, as a list is an ordinary file that root can write.
"""

from __future__ import annotations

import base64
import binascii
import glob
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from checks.survey.host import common, dpkg

LIMIT = 60.0  # s
MOST = 512 << 20  # bytes of a list
LISTS = "/var/lib/apt/lists"
SCRATCH = "/run/rw-check-release"
UNSIGNED = re.compile(
    r"\[[^]]*\b(?:trusted|allow-insecure|allow-weak)=(?:yes|true|0*1|on|with|enable)\b"
    r"|^(?:trusted|allow-insecure|allow-weak):\s*(?:yes|true|0*1|on|with|enable)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
"""Options of a source that let apt use what no key has signed (sources.list(5))."""
SAME = ("Architecture", "Depends", "Pre-Depends", "Installed-Size", "Conflicts", "Breaks", "Replaces", "Provides")
"""Fields of a package that its paragraphs in a list and in dpkg's status have in common."""
SUFFIXES = ("", ".lz4", ".zst", ".gz", ".xz", ".bz2", ".lzma")


class ArchiveList(NamedTuple):
    """A list of packages that apt has of a source."""

    archive: str
    """Address and release."""
    path: str
    release: str
    """The path of its release file, without its last part."""
    name: str
    """Its name in the release file."""
    signed_by: str
    source: str
    """The file that declares it."""


def describe_lists(root: str) -> str:
    """A digest of all that the answer depends on, by what the file system says of it: no file is read."""
    found = hashlib.sha256()
    patterns = (
        *(f"{LISTS}/*", "/etc/apt/sources.list", "/etc/apt/sources.list.d/*", "/etc/apt/trusted.gpg*"),
        *("/etc/apt/trusted.gpg.d/*", "/etc/apt/keyrings/*", "/usr/share/keyrings/*"),
    )
    for pattern in patterns:
        for path in sorted(glob.glob(f"{root}{pattern}")):
            with suppress(OSError):
                status = os.stat(path)
                if not os.path.isdir(path) and not path.endswith("/lock"):
                    found.update(f"{path}\0{status.st_ino} {status.st_size} {status.st_mtime_ns}\0".encode())
    return found.hexdigest()


def read_lists() -> list[ArchiveList]:
    """The lists of declared sources; none where apt does not work."""
    words = ("apt-get", "indextargets", "Created-By: Packages")
    try:
        text = common.run(*words, limit=LIMIT)
    except (OSError, RuntimeError, subprocess.TimeoutExpired):
        return []
    return parse_lists(text)


def parse_lists(text: str) -> list[ArchiveList]:
    """The same, of what apt-get prints: a paragraph for each."""
    found = []
    for paragraph in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in common.lines(paragraph) if ": " in line)
        path, name = fields.get("Filename", ""), fields.get("MetaKey", "")
        ending = name.replace("/", "_")
        for suffix in SUFFIXES if name else ():
            base, cut, rest = path.rpartition(f"{ending}{suffix}")
            if cut and not rest:
                archive = f"{fields.get('Repo-URI', '')} {fields.get('Release', '')}"
                source = fields.get("Sourcesentry", "").rpartition(":")[0]
                found.append(ArchiveList(archive, path, base, name, fields.get("Signed-By", ""), source))
                break
    return found


def find_archives(versions: Mapping[str, str]) -> dict[str, str]:
    """The archive of each package that a signed list has in this version.

    Args:
        versions: Name -> version, of installed packages.
    """
    installed = _installed(versions)
    found: dict[str, str] = {}
    for one, content in signed_lists():
        found = dict.fromkeys(matching_packages(content, versions, installed), one.archive) | found
    return found


class ArchivedDeb(NamedTuple):
    """A package file of an archive."""

    sha256: str
    size: int
    """In bytes."""


def find_debs(versions: Mapping[str, str]) -> dict[str, ArchivedDeb]:
    """The package file of each package that a signed list has in this version.

    Args:
        versions: Name -> version, of installed packages.
    """
    installed = _installed(versions)
    found: dict[str, ArchivedDeb] = {}
    for _, content in signed_lists():
        for name, fields in matching_packages(content, versions, installed).items():
            if fields.get("Size", "").isdecimal() and re.fullmatch(r"[0-9a-f]{64}", fields.get("SHA256", "")):
                found.setdefault(name, ArchivedDeb(fields["SHA256"], int(fields["Size"])))
    return found


def signed_lists() -> Iterator[tuple[ArchiveList, bytes]]:
    """Lists of declared sources, each with its content, that a release with a valid signature names."""
    signed: dict[str, str] = {}
    for one in read_lists():
        if UNSIGNED.search(_without_comments(common.read(f"{dpkg.ROOT}{one.source}") or "")):
            continue
        if one.release not in signed:
            signed[one.release] = verified_release(one)
        content = _content(one.path) if signed[one.release] else b""
        if content and _is_listed(content, one.name, signed[one.release]):
            yield one, content


def _without_comments(text: str) -> str:
    return "\n".join(line for line in common.lines(text) if not line.lstrip().startswith("#"))


def _installed(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Package -> its fields in dpkg's status, of some."""
    wanted = set(names)
    text = common.read(f"{dpkg.ROOT}{dpkg.ADMIN}/status", most=MOST) or ""
    return {
        fields["Package"]: fields
        for paragraph in text.split("\n\n")
        if (fields := parse_fields(paragraph)).get("Package") in wanted
    }


def parse_fields(paragraph: str) -> dict[str, str]:
    """Fields of a paragraph that has one line for each that counts."""
    return {
        key: " ".join(value.split())
        for key, separator, value in (
            line.partition(":") for line in paragraph.split("\n") if line[:1] not in (" ", "")
        )
        if separator
    }


def matching_packages(
    content: bytes, versions: Mapping[str, str], installed: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Package -> its fields in a list, of those that it has in their version, with the relations and the size that dpkg
    has of them.

    Args:
        content: The list.
        versions: Name -> version, of installed packages.
        installed: Name -> its fields in dpkg's status.
    """
    names = {name.encode() for name in versions}
    found: dict[str, dict[str, str]] = {}
    begins = content.startswith(b"Package: ")
    for number, paragraph in enumerate(content.split(b"\n\nPackage: ")):
        start = 9 if begins and not number else 0
        name = paragraph[start : paragraph.find(b"\n")]
        if name not in names:
            continue
        fields = parse_fields("Package: " + common.text(paragraph[start:]))
        own = installed.get(fields["Package"], {})
        if fields.get("Version") == versions[fields["Package"]] and all(
            fields.get(key, "") == own.get(key, "") for key in SAME
        ):
            found[fields["Package"]] = fields
    return found


def _content(path: str) -> bytes:
    """A list's bytes; apt keeps some packed."""
    with suppress(OSError, RuntimeError, subprocess.TimeoutExpired):
        if path.endswith(SUFFIXES[1:]):
            words = ("/usr/lib/apt/apt-helper", "cat-file", f"{dpkg.ROOT}{path}")
            return subprocess.run(words, capture_output=True, timeout=LIMIT, check=True).stdout
        return common.data(f"{dpkg.ROOT}{path}", most=MOST) or b""
    return b""


def _is_listed(content: bytes, name: str, release: str) -> bool:
    """Whether a release file has the SHA-256 of a list."""
    _, _, sums = release.partition("\nSHA256:\n")
    rows = (line.split() for line in sums.split("\n") if line.startswith(" "))
    return any(row[2:] == [name] and row[0] == hashlib.sha256(content).hexdigest() for row in rows)


def verified_release(one: ArchiveList) -> str:
    """The text of a release file whose signature holds; empty where it does not, or no program can tell."""
    keys = b"".join(dearmored(common.data(path) or b"") for path in keyrings(one.signed_by))
    if not keys:
        return ""
    ring = os.memfd_create("keys")
    try:
        os.write(ring, keys)
        keyring = f"/proc/self/fd/{ring}"
        joined, apart = f"{dpkg.ROOT}{one.release}InRelease", f"{dpkg.ROOT}{one.release}Release"
        signature = f"{apart}.gpg"
        cases = ((("--cleartext",), joined, joined), (("--signature-file", signature), apart, apart))
        for sqv_words, path, text in cases:
            if not os.path.exists(path):
                continue
            if os.path.exists("/usr/bin/gpgv"):
                files = (path,) if path == joined else (signature, path)
                words = ("/usr/bin/gpgv", "--quiet", "--keyring", keyring, "--", *files)
            elif os.path.exists("/usr/bin/sqv"):
                # it writes the text that is signed, into a file that must not be there yet
                output = f"{SCRATCH}-{os.getpid()}"
                to = ("--output", output) if path == joined else ()
                words = ("/usr/bin/sqv", *sqv_words, *to, "--keyring", keyring, path)
            else:
                return ""
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(words, capture_output=True, timeout=LIMIT, check=False, pass_fds=(ring,))
                if not done.returncode:
                    return signed_part(common.read(text, most=MOST) or "")
    finally:
        os.close(ring)
        with suppress(OSError):
            os.unlink(f"{SCRATCH}-{os.getpid()}")
    return ""


def signed_part(text: str) -> str:
    """The text that a signature covers, of one that has it in itself."""
    if not text.startswith("-----BEGIN PGP SIGNED MESSAGE-----"):
        return text if "-----BEGIN PGP" not in text else ""
    if text.count("-----BEGIN PGP SIGNED MESSAGE-----") != 1:
        return ""
    return text.partition("\n\n")[2].partition("\n-----BEGIN PGP SIGNATURE-----")[0] + "\n"


def keyrings(signed_by: str) -> list[str]:
    """Files of the keys that may sign a source's release: those that it names, else all that apt trusts."""
    named = [f"{dpkg.ROOT}{word}" for word in re.split(r"[\s,]+", signed_by) if word.startswith("/")]
    if named:
        return named
    patterns = ("/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d/*.gpg", "/etc/apt/trusted.gpg.d/*.asc")
    return [path for pattern in patterns for path in sorted(glob.glob(f"{dpkg.ROOT}{pattern}"))]


def dearmored(content: bytes) -> bytes:
    """Keys as programs read them, of those that are written as text."""
    if not content.lstrip().startswith(b"-----BEGIN"):
        return content
    found = b""
    for block in content.split(b"-----BEGIN PGP PUBLIC KEY BLOCK-----")[1:]:
        body = block.partition(b"-----END")[0].replace(b"\r", b"").partition(b"\n\n")[2]
        rows = [line for line in body.split(b"\n") if line and not line.startswith(b"=")]
        with suppress(binascii.Error, ValueError):
            found += base64.b64decode(b"".join(rows))
    return found
