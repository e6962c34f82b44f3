"""This machine's apt with a state of its own: what is installed here is nobody's concern, nor which release this is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from cli.lock_resolver.downloads import DownloadUnavailable

# How apt-get 2 and 3 begin a line that says what is wrong; of a signature they only warn.
REASONS = ("E: ", "Error: ", "W: GPG error", "W: OpenPGP", "Warning: OpenPGP")
# A line of `apt-get indextargets`: an address and three further fields
TARGET = re.compile(r"[a-z][a-z0-9+-]*:/\S* \S+ \S+ \S.*")


class IsolatedApt:
    """An apt that knows some sources and no packages."""

    def __init__(self, work: Path, sources: list[str], **settings: str) -> None:
        """Set it up in an empty folder, and let it read its sources.

        Args:
            work: Where its state goes.
            sources: Lines of a sources.list.
            settings: More of apt's own, in place of this machine's.

        Raises:
            DownloadUnavailable: there is no apt here, or it cannot read or verify one of them.
        """
        self.work = work
        for name in ("lists/partial", "archives/partial", "state", "cache", "parts"):
            (work / name).mkdir(parents=True)
        (work / "status").touch()
        (work / "sources.list").write_text("".join(f"{line}\n" for line in sources))
        set_ = {
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::GzipIndexes": "false",
            # whatever this machine lets its own archives do
            "Acquire::AllowInsecureRepositories": "false",
            "Acquire::AllowWeakRepositories": "false",
            "APT::Get::AllowUnauthenticated": "false",
            "Dir::State": work / "state",
            "Dir::State::status": work / "status",
            "Dir::State::Lists": work / "lists",
            "Dir::Cache": work / "cache",
            "Dir::Cache::archives": work / "archives",
            "Dir::Etc::SourceList": work / "sources.list",
            "Dir::Etc::SourceParts": work / "parts",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": work / "parts",
        }
        self.options = [word for name, value in (set_ | settings).items() for word in ("-o", f"{name}={value}")]
        self.run_apt_get("update")

    def run_apt_get(self, *arguments: str) -> str:
        """Run apt-get.

        Raises:
            DownloadUnavailable: it failed.
        """
        return run_program(["apt-get", "-qq", *self.options, *arguments])

    def has_package(self, name: str) -> bool:
        """Whether its sources have a package.

        Raises:
            DownloadUnavailable: it cannot be asked.
        """
        return name in run_program(["apt-cache", *self.options, "pkgnames", name]).splitlines()

    def read_package_lists(self) -> str:
        """All packages of its sources, as their archives describe them; apt has verified that they do."""
        return "\n\n".join(path.read_text("utf-8") for path in sorted((self.work / "lists").glob("*_Packages")))


def run_program(command: list[str]) -> str:
    """Run a program of a Debian system and give what it prints.

    Raises:
        DownloadUnavailable: it is not here, or failed.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C.UTF-8"}
        )
    except FileNotFoundError:
        raise DownloadUnavailable(f"{command[0]} is not on this machine: packages need Debian or Ubuntu") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        # there are more words around it
        reasons = [line for line in said if line.startswith(REASONS)] or said[-3:]
        raise DownloadUnavailable(f"{command[0]} failed: {' '.join(reasons[:3])}")
    if "\0" in done.stdout or (done.stdout and not done.stdout.endswith("\n")):
        raise DownloadUnavailable(f"{command[0]}: its output is cut off, or no text")
    return done.stdout
