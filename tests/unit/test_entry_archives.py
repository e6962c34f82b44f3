"""Which archive has a package's version: signed lists of declared sources alone count."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from checks.survey.host import dpkg, entry_archives
from checks.survey.host.entry_archives import UNSIGNED, find_archives, parse_lists, signed_part

TARGET = (
    "MetaKey: main/binary-amd64/Packages\nFilename: /var/lib/apt/lists/a_dists_s_main_binary-amd64_Packages.lz4\n"
    "Repo-URI: http://a/\nRelease: s\nSigned-By: /k.gpg\nSourcesentry: /etc/apt/sources.list:1\n\n"
)
FIELDS = "Architecture: amd64\nVersion: 1-2\nInstalled-Size: 10\nDepends: libc6 (>= 2)\n"
STATUS, LISTED = (
    f"Package: tool\nStatus: install ok installed\n{FIELDS}",
    f"Package: tool\n{FIELDS}SHA256: 0\n",
)


def _find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, listed: str, forged: str = "", source: str = ""
) -> dict[str, str]:
    """The archives of `tool` on a host with one list.

    Args:
        tmp_path: The host.
        monkeypatch: Replaces apt and the check of the signature.
        listed: The list that is signed.
        forged: The text of its file; empty for the same.
        source: The line of its source.
    """
    monkeypatch.setattr(dpkg, "ROOT", str(tmp_path))
    for path, text in {
        "/var/lib/dpkg/status": STATUS,
        "/etc/apt/sources.list": source or "deb http://a s main\n",
        "/var/lib/apt/lists/a_dists_s_main_binary-amd64_Packages": forged or listed,
    }.items():
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    release = (
        f"Origin: A\nSHA256:\n {hashlib.sha256(listed.encode()).hexdigest()} {len(listed)} main/binary-amd64/Packages\n"
    )
    monkeypatch.setattr(entry_archives, "read_lists", lambda: parse_lists(TARGET.replace(".lz4", "")))
    monkeypatch.setattr(entry_archives, "verified_release", lambda one: release)
    return find_archives({"tool": "1-2"})


MORE = "Package: aa\nVersion: 1\n\n"


@pytest.mark.parametrize("text", [LISTED, MORE + LISTED, LISTED + "\n" + MORE])
def test_a_signed_list_has_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Wherever the package is in it."""
    assert _find(tmp_path, monkeypatch, listed=text) == {"tool": "http://a/ s"}


@pytest.mark.parametrize(
    ("listed", "forged", "source"),
    [
        (LISTED.replace("1-2", "1-3"), "", ""),
        (LISTED.replace("amd64", "i386"), "", ""),
        (LISTED.replace("10", "11"), "", ""),
        (LISTED.replace("libc6", "libc7"), "", ""),
        (MORE, LISTED, ""),
        (LISTED, "", "deb [arch=amd64 trusted=yes] http://a s main\n"),
        (LISTED, "", "deb [allow-insecure=yes] http://a s main\n"),
    ],
)
def test_packages_that_no_signed_list_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, forged: str, source: str
) -> None:
    """Another version, architecture, size or relation; a forged list; a source that needs no signature."""
    assert _find(tmp_path, monkeypatch, listed=listed, forged=forged, source=source) == {}


def test_lists_have_their_release_and_source() -> None:
    """By what apt-get prints of them, packed or not."""
    (one,) = parse_lists(TARGET)
    assert (one.release, one.name) == ("/var/lib/apt/lists/a_dists_s_", "main/binary-amd64/Packages")
    assert (one.signed_by, one.source) == ("/k.gpg", "/etc/apt/sources.list")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nA: 1\n-----BEGIN PGP SIGNATURE-----\nx", "A: 1\n"),
        ("A: 1\n", "A: 1\n"),
        ("SHA256:\n evil\n-----BEGIN PGP SIGNED MESSAGE-----\n\nA: 1\n-----BEGIN PGP SIGNATURE-----\nx", ""),
        (2 * "-----BEGIN PGP SIGNED MESSAGE-----\n\nA: 1\n-----BEGIN PGP SIGNATURE-----\nx\n", ""),
    ],
)
def test_only_the_signed_part_counts(text: str, part: str) -> None:
    """Text before or after it has no author."""
    assert signed_part(text) == part


@pytest.mark.parametrize(
    ("text", "unsigned"),
    [
        ("deb [trusted=yes] http://a s main", True),
        ("deb [ signed-by=/k.gpg allow-weak=yes ] http://a s main", True),
        ("Types: deb\nTrusted: yes\n", True),
        ("Types: deb\nTrusted: enable\n", True),
        ("deb [trusted=with] http://a s main", True),
        ("deb [trusted=01] http://a s main", True),
        ("Types: deb\nAllow-Insecure: yes\n", True),
        ("deb [signed-by=/trusted.gpg] http://a s main", False),
        ("Types: deb\nTrusted: no\n", False),
    ],
)
def test_options_that_need_no_signature(text: str, unsigned: bool) -> None:
    """In both forms of a source (sources.list(5))."""
    assert bool(UNSIGNED.search(text)) == unsigned
