"""Copies of secrets that others may read: in files, packed archives and extended attributes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from checks.survey.host import entry_privileges, secret_entries
from tests.unit.fingerprinted_host import collect, question, write
from tests.unit.fingerprinted_host import root as root

KEY = b"sk-SECRET-0123456789"


def copies(root: Path, *, deep: bool = False) -> list[str]:
    entry_privileges.usual_scan.cache_clear()
    asked = question(root, readers=("secret_copies",), deep=deep) | {"credentials": "/etc/rigwright/credentials"}
    collection = collect(asked)
    collection.digests.save()
    return [entry.key for entry in collection.entries]


@pytest.fixture
def host(root: Path) -> Path:
    write(root, "etc/rigwright/credentials/chat.api-key", KEY + b"\n", 0o600)
    return root


def pack_secret(filler: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in (("filler", os.urandom(filler)), ("key", KEY)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return content.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_secrets_in_archives_are_entries(host: Path, pack: Callable[[bytes], bytes]) -> None:
    write(host, "var/backups/etc.tar", pack(pack_secret(1 << 19)))
    assert copies(host) == ["/var/backups/etc.tar"]


@pytest.mark.parametrize("begin", [b"BZh", b"\x1f\x8b", b"\xfd7zXZ"])
def test_a_file_that_only_begins_like_an_archive_is_read_as_it_is(host: Path, begin: bytes) -> None:
    write(host, "var/backups/etc.tar", begin + b" " + KEY)
    assert copies(host) == ["/var/backups/etc.tar"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_each_member_of_an_archive_is_read(host: Path, pack: Callable[[bytes], bytes]) -> None:
    write(host, "var/log/app.log.1", pack(b"begin") + pack(b"") + pack(KEY))
    assert copies(host) == ["/var/log/app.log.1"]


def test_unpacked_archives_count_for_all_bytes(host: Path) -> None:
    for number in range(20):
        write(host, f"var/tmp/{number}.bz2", bz2.compress(bytes(16 << 20)))
    made = 0

    def count(pieces: list[bytes]) -> Iterator[bytes]:
        nonlocal made
        for piece in unpacked(pieces):
            made += len(piece)
            yield piece

    unpacked = secret_entries.unpacked_pieces
    with patch.object(secret_entries, "unpacked_pieces", count):
        copies(host)
    assert made <= secret_entries.LIMITS[False][2] + secret_entries.PIECE


def test_a_file_that_cannot_be_opened_now_is_read_by_the_next_run(host: Path) -> None:
    write(host, "var/backups/key", KEY)
    with patch.object(secret_entries.SecretSearch, "_find", side_effect=BlockingIOError):
        assert copies(host) == []
    assert copies(host) == ["/var/backups/key"]


@pytest.mark.parametrize("place", ["usr/share/doc/ssh/examples/key", "var/lib/x/a/b/key", "srv/models/key"])
def test_places_of_copies(host: Path, place: str) -> None:
    write(host, place, KEY)
    write(host, f"{place}-closed", KEY, 0o600)
    assert copies(host) == [f"/{place}"]


def test_secrets_across_pieces_are_entries(host: Path) -> None:
    with patch.object(secret_entries, "PIECE", 64):
        write(host, "srv/copy", b"x" * 54 + KEY)
        assert copies(host) == ["/srv/copy"]


def test_secrets_in_attributes_are_entries(host: Path) -> None:
    path = write(host, "etc/issue.net")
    try:
        os.setxattr(path, "user.mime_type", KEY)
    except OSError:
        pytest.skip("no extended attributes here")
    assert copies(host) == ["/etc/issue.net"]


def test_broken_and_endless_archives_end(host: Path) -> None:
    write(host, "srv/broken.gz", gzip.compress(b"x" * 99)[:20] + b"nonsense" * 9)
    write(host, "srv/bomb.gz", gzip.compress(b"\0" * (64 << 20)))
    limits = {False: (4 << 20, 1 << 20, 64 << 20)}
    with patch.object(secret_entries, "LIMITS", limits):
        assert copies(host) == []


def test_a_clean_file_is_not_read_again_until_it_changes(host: Path) -> None:
    write(host, "srv/note", b"nothing of interest")
    assert copies(host) == []
    with patch.object(secret_entries.SecretSearch, "_find", side_effect=AssertionError("read again")):
        assert copies(host) == []
    write(host, "srv/note", b"now: " + KEY)
    assert copies(host) == ["/srv/note"]


def test_input_of_a_run_is_bounded(host: Path) -> None:
    for number in range(9):
        os.utime(write(host, f"srv/{number}", b"x" * 4096 + KEY), (number, number))
    with patch.object(secret_entries, "LIMITS", {False: (8192, 8192, 3 * 4116)}):
        assert len(copies(host)) == 3
