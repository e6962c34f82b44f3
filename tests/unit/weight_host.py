"""A folder with weights that stands in for a host: its scripts run in a shell of this machine."""

import os
import subprocess
from pathlib import Path
from typing import Any, TypeVar

from checks.connections import ConnectedHost
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.serving import serving_state, weight_inventory
from rigwright.serving.serving_state import ObservedServing, render_state_query
from rigwright.serving.weight_inventory import WeightInventory
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import REHASH_STAMP
from roles import root_shell
from roles.weights.host.records import LockedFile
from tests.unit import samples, short_programs
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.weight_shelf import NOW, WeightShelf

T = TypeVar("T")
COMMIT = samples.COMMIT
OTHER = "f" * 40
# answers what a test has written beside it; units that have failed are listed where no states are asked for
SYSTEMCTL = (
    'case "$*" in show*LoadState*) eval "cat \\"$0.\\${$#}\\"" 2>/dev/null ;; '
    'list-units*--state=*) grep -v " failed failed" "$0.jobs" || : ;; list-units*) cat "$0.jobs" ;; esac'
)


class WeightHost(WeightShelf):
    """One host, whose rig serves `small` from its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.config = folder / "etc"
        (self.config / "current/units").mkdir(parents=True)
        (self.config / "generations").mkdir()
        self.ledger = folder / "owned"
        self.ledger.write_text(f"dir {self.root}\n")
        self.systemctl = write_stand_in(folder / "bin", "systemctl", SYSTEMCTL)
        self.set_systemctl_answer("jobs", "")
        self.stamp = folder / Path(REHASH_STAMP).name
        self.set_last_run(0.5)

    def set_systemctl_answer(self, name: str, text: str) -> None:
        """Set what systemctl answers about a unit, or as the list of jobs."""
        self.systemctl.with_name(f"systemctl.{name}").write_text(text)

    def set_last_run(self, hours: float) -> None:
        """Have the timer have begun its last run so long ago."""
        self.stamp.touch()
        os.utime(self.stamp, (NOW - hours * 3600, NOW - hours * 3600))

    @property
    def rig(self) -> Rig:
        return self.rig_with(samples.sample_instance())

    def rig_with(self, *instances: Any) -> Rig:
        # a rig's own rule keeps roots out of /tmp
        roots = Roots.model_construct(
            models=str(self.root), state=str(self.folder), config=str(self.config), software=str(self.folder / "opt")
        )
        return samples.sample_rig(*instances, roots=roots)

    def add_fetched_file(self, path: str, content: bytes = b"weights", age_days: float = 1) -> LockedFile:
        """A file that a job of ours has fetched and verified."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        with self.ledger.open("a") as ledger:
            ledger.write(f"file {self.root / path}\n")
        return self.add_file(path, content, age_days)

    def locked_row(self, file: LockedFile, **changes: object) -> Artefact:
        """The row of `small` for a file."""
        name, version, last = file.path.split("/")
        values = {"name": name, "version": version, "file": last, "sha256": file.sha256, "size": file.size}
        return samples.sample_artefact(**values | changes)

    def add_generation(self, number: int, *paths: str) -> None:
        """A generation that refers to files."""
        folder = self.config / "generations" / str(number)
        folder.mkdir()
        (folder / "references").write_text("".join(f"{self.root / path}\n" for path in paths))

    def add_served_instance(self, instance: str, path: str) -> None:
        """Have an instance of the current generation."""
        unit = self.config / f"current/units/rigwright-{instance}.service"
        unit.write_text(f"[Service]\nExecStart=/opt/llama-server --model {self.root / path} --port 1\n")

    def run_script(self, script: str) -> subprocess.CompletedProcess[str]:
        script = script.replace("/run/rigwright", str(self.folder / "run"))
        script = script.replace(str(Path(REHASH_STAMP).parent), str(self.folder))
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return short_programs.run_program(["sh", "-c", script], env={"PATH": path})

    def read_inventory(self) -> WeightInventory:
        done = self.run_script(weight_inventory.render_weights_query(self.rig.roots))
        assert done.stderr == ""
        return weight_inventory.parse_weight_inventory(self.rig.roots, done.stdout.splitlines())

    def read_serving(self) -> ObservedServing:
        return serving_state.parse(
            self.run_script(
                render_state_query(
                    str(self.config),
                    str(self.folder / "opt"),
                    str(self.folder / "starts"),
                    str(self.folder / "build"),
                    str(self.folder / "owned"),
                )
            ).stdout.splitlines()
        )

    def box(self, name: str = "box", rig: Rig | None = None) -> ConnectedHost:
        """It, as verbs of the command line are given it."""
        return FolderBox(name, rig or self.rig, self)


class FolderBox(ConnectedHost):
    """A box whose scripts run in a folder."""

    def _run(self, script: str, stdin: str = "", limit: float = 0.0) -> root_shell.RootCommandResult:
        # a text for a shell is a script too
        done = self.target.run_script(stdin or script)
        return root_shell.RootCommandResult(done.returncode, done.stdout.encode(), done.stderr.encode())
