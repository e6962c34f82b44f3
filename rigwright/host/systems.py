"""The systems that a rig can run, and what their archives are called."""

from __future__ import annotations

SUPPORTED = {
    ("debian", "12"),
    ("debian", "13"),
    ("ubuntu", "22.04"),
    ("ubuntu", "24.04"),
    ("ubuntu", "26.04"),
}
SYSTEMS = tuple(sorted(f"{distribution}-{release}" for distribution, release in SUPPORTED))
# What their archives call them (wiki.debian.org/DebianReleases, wiki.ubuntu.com/Releases).
CODENAMES = {
    "debian-12": "bookworm",
    "debian-13": "trixie",
    "ubuntu-22.04": "jammy",
    "ubuntu-24.04": "noble",
    "ubuntu-26.04": "resolute",
}
KEYRING = "/usr/share/keyrings/{}-archive-keyring.gpg"  # of a distribution
COMPONENTS = {"debian": "main", "ubuntu": "main universe"}
