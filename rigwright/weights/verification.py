"""Weights on a host: which records prove that a rig's files are verified, and how that is asked in milliseconds."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rigwright.host import script_output
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.host.script_output import HostOutput, number, optional, path, tolerant
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.instance import Instance, loaded_weights
from rigwright.model.inventory_feature import FactSource
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.supply.lock import Artefact

# The unit that hashes weights again. Not named as instances are, and with another first line: it is no part of what is
# served.
REHASH = "rigwright_rehash"
OWNED = "# Written by rigwright for weights; changes here are undone by the next deploy."
# The package name of the programs for weights.
PACKAGE = "rigwright_weights"
REHASH_UNITS = (f"{REHASH}.timer", f"{REHASH}.service")
# Where systemd writes down when a persistent timer has last begun (systemd.timer(5), Persistent=).
REHASH_STAMP = f"/var/lib/systemd/timers/stamp-{REHASH}.timer"
DUE_DAYS = 7  # after which verified bytes are hashed again


RECORD = script_output.matching(r"[0-9a-f]{64}-[0-9a-f]{12}", "a record's name")
VERIFIED: script_output.Schema = {"verified": (RECORD,)}
"""The output of templates/weights/verified.sh.j2."""


@dataclass(frozen=True)
class RecordedFile:
    """A locked file of a host, as its record there knows it."""

    root: str
    """The models' root on the host."""
    path: str
    """From there."""
    sha256: str

    @property
    def record(self) -> str:
        """The record's file name, as roles/weights/host/records.py makes it."""
        return f"{self.sha256}-{hashlib.sha256(self.path.encode()).hexdigest()[:12]}"

    @property
    def absolute(self) -> str:
        """The file's path on the host."""
        return f"{self.root}/{self.path}"


def records_folder(roots: Roots) -> str:
    """Where a host keeps its records."""
    return f"{roots.state}/weights"


def weights_program_folder(roots: Roots) -> str:
    """The folder of the programs that look after weights on the host."""
    return f"{roots.software}/weights"


def below_models(artefact: Artefact) -> str:
    """The path of a file of weights, or of what something is installed from, from the models' root on."""
    return artefact.weight_path if artefact.kind == "weight" else artefact.package_path


def recorded_file(roots: Roots, artefact: Artefact) -> RecordedFile:
    """A row of the lock as its record knows it."""
    return RecordedFile(roots.models, below_models(artefact), artefact.sha256)


def render_rehash_units(roots: Roots) -> dict[str, str]:
    """The unit files of what hashes weights again, by path; the timer is the one to enable."""
    values = {"owned": OWNED, "models": roots.models, "records": records_folder(roots), "due_days": DUE_DAYS}
    values |= {"locks": LOCKS, "programs": weights_program_folder(roots), "package": PACKAGE}
    kinds = ("timer", "service")
    return {f"{UNIT_FOLDER}/{REHASH}.{kind}": render(f"weights/rehash.{kind}.j2", **values) for kind in kinds}


def render_verified_test(records_folder: str, files: Sequence[RecordedFile]) -> str:
    """A POSIX shell condition: every file has its record, and is as it was when its bytes were verified.

    The records are read at once, the paths in them asked with one `stat`, and both texts compared. The command has a
    name of 77 bytes a file and no path, for a command line of Linux ends at 128 KiB (execve(2)); that the records are
    about the right paths is proven by one SHA-256 over all of them. It has no single quotes: those of the shells around
    it would make each five characters long.

    Args:
        records_folder: Where the host's records lie.
        files: The files to verify; with none, it holds.
    """
    if not files:
        return "true"
    paths = "".join(f"{file.absolute}\n" for file in files)
    digest = hashlib.sha256(paths.encode()).hexdigest()
    names = shlex.join(file.record for file in files)
    return (
        f"(cd {shlex.quote(records_folder)} 2>/dev/null && r=$(cat {names} 2>/dev/null) && "
        f'p=$(printf "%s\\n" "$r" | cut -d " " -f 5-) && '
        f'[ "$(printf "%s\\n" "$p" | sha256sum)" = "{digest}  -" ] && '
        '[ "$(printf "%s\\n" "$p" | tr "\\n" "\\0" | '
        'LC_ALL=C xargs -0 stat -c "%s %.9Y %.9Z %i %n" 2>/dev/null)" = "$r" ])'
    )


# Where packages lie (Artefact.package_path). No hub's owner has a name that begins so.
PACKAGES = "_packages"
# The end of the name of a file that is not whole yet.
PART = ".part"


def _weight_values(roots: Roots, instances: Sequence[Instance]) -> Mapping[str, object]:
    folders = {f"{roots.models}/{artefact.weight_folder}" for artefact in loaded_weights(instances)}
    return {"jobs": roots.jobs, "weights": [*sorted(folders), f"{roots.models}/{PACKAGES}"]}


def _read_weight_facts(output: HostOutput) -> Mapping[str, object]:
    rows = [(size, path) for size, path in output.many("weight") if path]
    return {"sent_kib": output.one("sent_kib"), "weight_bytes": MappingProxyType(_parse_weight_sizes(rows))}


def _parse_weight_sizes(rows: list[tuple[int, str]]) -> dict[str, int]:
    """Bytes and path of whole files and of parts: a part counts where there is no whole one."""
    found = {path: size for size, path in rows}
    parts = {path.removesuffix(PART): size for path, size in found.items() if path.endswith(PART)}
    return parts | {path: size for path, size in found.items() if not path.endswith(PART)}


WEIGHT_FACTS = FactSource(
    "weights",
    "weights/probe.sh.j2",
    lambda rig: _weight_values(rig.roots, rig.instances),
    {"sent_kib": (optional(number, 0),), "weight": (number, tolerant(path))},
    _read_weight_facts,
)
