"""The machine's own apt on a host that is a folder: what it would install from stand-in archives."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab.nvidia.debian_packages import StandInDeb
from tests.unit import short_programs

CHANGE = re.compile(r"^(Inst|Remv) (\S+)(?: \[\S+\])?(?: \((\S+) )?", re.MULTILINE)


class FolderApt:
    """Apt with state, sources and preferences of its own."""

    def __init__(self, root: Path, sources: Sequence[str]) -> None:
        for name in ("lists/partial", "archives/partial", "state", "cache", "sources", "preferences", "conf"):
            (root / name).mkdir(parents=True)
        for number, text in enumerate(sources):
            (root / f"sources/{number}.sources").write_text(text)
        (root / "status").touch()
        self.root = root

    def run_command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command; apt's words are English."""
        set_ = {
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Dir::State": self.root / "state",
            "Dir::State::status": self.root / "status",
            "Dir::State::Lists": self.root / "lists",
            "Dir::Cache": self.root / "cache",
            "Dir::Cache::archives": self.root / "archives",
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": self.root / "sources",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": self.root / "preferences",
        }
        options = [word for name, value in set_.items() for word in ("-o", f"{name}={value}")]
        environment = os.environ | {"LC_ALL": "C.UTF-8"}
        command = [words[0], *options, *words[1:]]
        return short_programs.run_program(command, env=environment)

    def update_lists(self) -> str:
        """Read the archives; returns what apt complains about."""
        done = self.run_command("apt-get", "-qq", "update")
        return done.stderr if done.returncode else ""

    def write_preferences(self, text: str) -> None:
        (self.root / "preferences/pin").write_text(text)

    def set_installed(self, debs: Iterable[StandInDeb]) -> None:
        """Say that these are installed."""
        stanzas = [f"{deb.render_control()}Status: install ok installed\n" for deb in debs]
        (self.root / "status").write_text("\n".join(stanzas))

    def simulate_install(self, *names: str) -> tuple[dict[str, str], set[str]]:
        """What would come, with its version, and what would go.

        Raises:
            RuntimeError: apt sees no way.
        """
        done = self.run_command(
            "apt-get", "--simulate", "--no-install-recommends", "--allow-downgrades", "install", *names
        )
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        rows = CHANGE.findall(done.stdout)
        come = {name: version for what, name, version in rows if what == "Inst"}
        return come, {name for what, name, _ in rows if what == "Remv"}
