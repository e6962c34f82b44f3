"""Names and the digest of a generation's folder. A box that pulls generations has this file, too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

# Beside the files that a generation's digest is made of: its digest and when it was written.
META = "meta"
# Written once all its instances have answered.
PROVEN = "proven"
# In the configuration's folder while a generation is being activated: the numbers of the old and the new one.
ACTIVATING = "activating"
# The unit that an activation runs as.
JOB = "rw-job-activate"


def file_mode(text: str) -> str:
    """The mode of a generation's file, in octal: scripts can be run."""
    return "755" if text.startswith("#!") else "644"


def digest_generation(files: Mapping[str, str], links: Mapping[str, str]) -> str:
    """SHA-256 of all content, as templates/generation/state.sh.j2 finds it on the host.

    Args:
        files: Path in the folder -> text.
        links: Path in the folder -> the target of the link.
    """
    entries = {path: (hashlib.sha256(text.encode()).hexdigest(), file_mode(text)) for path, text in files.items()}
    return digest_entries(entries, links)


def digest_entries(entries: Mapping[str, tuple[str, str]], links: Mapping[str, str]) -> str:
    """The same from digests and modes.

    Args:
        entries: Path in the folder -> SHA-256 and mode of the file.
        links: Path in the folder -> the target of the link.
    """
    lines = [f"{sha256}  {path}" for path, (sha256, _) in sorted(entries.items())]
    lines += [f"mode {mode} {path}" for path, (_, mode) in sorted(entries.items())]
    lines += [f"link {path} {target}" for path, target in sorted(links.items())]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
