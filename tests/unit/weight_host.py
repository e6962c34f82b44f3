"""A folder with weights that stands in for a host: its scripts run in a shell of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, TypeVar

from checks.looking import Box
from rigwright.model.entry import Roots
from rigwright.model.rig import Rig
from rigwright.serving import live as served
from rigwright.serving import stored
from rigwright.serving.live import Served, state_script
from rigwright.serving.stored import Stored
from rigwright.supply.lock import Artefact
from rigwright.weights.records import REHASH_STAMP
from roles import root
from roles.weights.host.records import File
from tests.unit import programs, samples
from tests.unit.scripts import stand_in
from tests.unit.shelf import NOW, Shelf

T = TypeVar("T")
COMMIT = samples.COMMIT
OTHER = "f" * 40
# answers what a test has written beside it; units that have failed are listed where no states are asked for
SYSTEMCTL = (
    'case "$*" in show*LoadState*) eval "cat \\"$0.\\${$#}\\"" 2>/dev/null ;; '
    'list-units*--state=*) grep -v " failed failed" "$0.jobs" || : ;; list-units*) cat "$0.jobs" ;; esac'
)


class WeightHost(Shelf):
    """One host, whose rig serves `small` from its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.config = folder / "etc"
        (self.config / "current/units").mkdir(parents=True)
        (self.config / "generations").mkdir()
        self.ledger = folder / "owned"
        self.ledger.write_text(f"dir {self.root}\n")
        self.systemctl = stand_in(folder / "bin", "systemctl", SYSTEMCTL)
        self.says("jobs", "")
        self.stamp = folder / Path(REHASH_STAMP).name
        self.went_off(0.5)

    def says(self, name: str, text: str) -> None:
        """Set what systemctl answers about a unit, or as the list of jobs."""
        self.systemctl.with_name(f"systemctl.{name}").write_text(text)

    def went_off(self, hours: float) -> None:
        """Have the timer have begun its last run so long ago."""
        self.stamp.touch()
        os.utime(self.stamp, (NOW - hours * 3600, NOW - hours * 3600))

    @property
    def rig(self) -> Rig:
        return self.rig_with(samples.instance())

    def rig_with(self, *instances: Any) -> Rig:
        # a rig's own rule keeps roots out of /tmp
        roots = Roots.model_construct(
            models=str(self.root), state=str(self.folder), config=str(self.config), software=str(self.folder / "opt")
        )
        return samples.rig(*instances, roots=roots)

    def fetched(self, path: str, content: bytes = b"weights", age_days: float = 1) -> File:
        """A file that a job of ours has fetched and verified."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        with self.ledger.open("a") as ledger:
            ledger.write(f"file {self.root / path}\n")
        return self.file(path, content, age_days)

    def locked(self, file: File, **changes: object) -> Artefact:
        """The row of `small` for a file."""
        name, version, last = file.path.split("/")
        values = {"name": name, "version": version, "file": last, "sha256": file.sha256, "size": file.size}
        return samples.artefact(**values | changes)

    def generation(self, number: int, *paths: str) -> None:
        """A generation that refers to files."""
        folder = self.config / "generations" / str(number)
        folder.mkdir()
        (folder / "references").write_text("".join(f"{self.root / path}\n" for path in paths))

    def serves(self, instance: str, path: str) -> None:
        """Have an instance of the current generation."""
        unit = self.config / f"current/units/rigwright-{instance}.service"
        unit.write_text(f"[Service]\nExecStart=/opt/llama-server --model {self.root / path} --port 1\n")

    def run_script(self, script: str) -> subprocess.CompletedProcess[str]:
        script = script.replace("/run/rigwright", str(self.folder / "run"))
        script = script.replace(str(Path(REHASH_STAMP).parent), str(self.folder))
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return programs.run(["sh", "-c", script], env={"PATH": path})

    def stored(self) -> Stored:
        done = self.run_script(stored.script(self.rig))
        assert done.stderr == ""
        return stored.parse(self.rig, done.stdout.splitlines())

    def served(self) -> Served:
        return served.parse(
            self.run_script(
                state_script(
                    str(self.config),
                    str(self.folder / "opt"),
                    str(self.folder / "starts"),
                    str(self.folder / "build"),
                    str(self.folder / "owned"),
                )
            ).stdout.splitlines()
        )

    def box(self, name: str = "box", rig: Rig | None = None) -> Box:
        """It, as verbs of the command line are given it."""
        return FolderBox(name, rig or self.rig, self)


class FolderBox(Box):
    """A box whose scripts run in a folder."""

    def _run(self, script: str, stdin: str = "") -> root.Answer:
        # what a shell is to read is a script too
        done = self.target.run_script(stdin or script)
        return root.Answer(done.returncode, done.stdout.encode(), done.stderr.encode())
