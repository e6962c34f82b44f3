"""Installations: files, jobs and recorded trees of what a deploy installs."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rigwright.model.nvidia_tables import Toolkit
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.supply.lock import Artefact

# In every installation's folder: written last, in one step. A folder without it is made anew. Its `inputs` are what the
# installation's digest is made of.
MARKER = "build.json"
# The SHA-256 of each of its files, by its path in the folder.
FILES = "files.sha256"


@dataclass(frozen=True)
class Installation:
    """The installation of an engine of a rig on one host: a folder below engines/ that the digest of all its inputs
    names."""

    name: str
    """The engine's, in the catalogue."""
    version: str
    digest: str
    """First 12 hexadecimal digits of the SHA-256 of all inputs."""
    artefacts: tuple[Artefact, ...]
    """The artefacts of the lock that it is made of."""
    what: str
    """The work to get it, for people: "compile llama.cpp 0.3.36 for the CPU"."""
    record: Mapping[str, object] = field(default_factory=dict)
    """The `inputs` of its marker."""
    toolkit: Toolkit | None = None
    """The CUDA toolkit that it is made with, or needs; None without one."""
    work_kib: int = 0
    """Room that making it takes in the state's root, KiB; free again afterwards."""
    installed_kib: int = 0
    """Room that it takes in the software's root, KiB, where that is worth a look beforehand."""

    @property
    def folder(self) -> str:
        """The folder's name below engines/."""
        return f"{self.name}-{self.version}-{self.digest}"

    @property
    def fetched_bytes(self) -> int:
        """The bytes of it that come from outside the host, by the lock."""
        return sum(artefact.size for artefact in self.artefacts)


@dataclass(frozen=True)
class InstallJob:
    """The job on a host that makes an installation."""

    target: str
    """The installation's folder."""
    work: str
    """A folder that nothing else uses."""
    log: str
    """The file that the job's output goes to."""
    tools: str
    """The folder of the host's Python tools; of what puts environments together where it is one."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Name -> text of what the role has to run on hosts."""


class Installer(ABC):
    """How one kind of installation comes to a host, and what proves that it is the declared one."""

    packages: ClassVar[tuple[str, ...]] = ()
    """The distribution's packages that installing or running it takes, on one release or another."""
    program: ClassVar[str] = ""
    """The file name of what is started of it, which everybody may run; empty where that is no file of its own."""
    artefact_noun: ClassVar[str] = "packages"
    """The noun for its artefacts, for people."""
    compiles: ClassVar[bool] = False
    """Whether it is compiled on the host, so that boxes of a rollout may copy it from those that have compiled it."""
    by_installers: ClassVar[bool] = False
    """Whether the host needs what puts environments together to install it."""

    @abstractmethod
    def script(self, rig: Rig, made: Installation, job: InstallJob) -> str:
        """The shell script that installs it: fills the folder, and writes FILES and then MARKER last.

        Root runs it. The fetcher has placed the artefacts below the models' root before. Programs from outside run by
        the function `offline` alone (templates/engines/apart.sh.j2), and the script judges what they leave.
        """

    def version(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], str]:
        """A command that starts it and ends at once, and what its output holds where it is the declared one."""
        return (), ""

    def machine_code(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], frozenset[str]]:
        """A command that lists the machine code in an installation for cards, and the names, such as sm_86, that its
        output holds where it is for exactly the cards that it is to run on; none where it has none.
        """
        return (), frozenset()


def records_folder(roots: Roots) -> str:
    """The folder on the host with the record of each tree."""
    return f"{roots.state}/trees"


def record_path(roots: Roots, tree: str) -> str:
    """Where the record of a tree lies: its absolute path names it."""
    return f"{records_folder(roots)}/{hashlib.sha256(tree.encode()).hexdigest()[:16]}-{tree.rpartition('/')[2]}"


def scan_path(roots: Roots, tree: str) -> str:
    """Where the job that has made a tree leaves what it saw of each file, for the record."""
    return f"{record_path(roots, tree)}.seen"
