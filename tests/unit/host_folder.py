"""A folder that stands in for a host's file system, with a systemctl that stands in for systemd's."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rigwright.host.generation_layout import META, PROVEN
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.serving import serving_state
from rigwright.serving.activation import ActivationGoal, goal_of
from rigwright.serving.generation import Generation
from rigwright.serving.serving_state import ObservedServing, render_state_query
from roles.operations.generations import pack_generation
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in

# answers what a test has written beside it, and remembers what it was asked to do
SYSTEMCTL = r"""
cd "$(dirname "$0")/../systemd"
case "$*" in
  show*Description*)
    printf 'ActiveState=inactive\nDescription=a job\n\nActiveState=active\nDescription=%s\n' "$(cat description)" ;;
  show*NeedDaemonReload*) cat reload ;;
  show*ActiveState,SubState,NRestarts,Job*) cat "state-${3-}" 2>/dev/null || cat state ;;
  show*Id,*) cat processes ;;
  list-units*) cat sockets ;;
  "show --property=ActiveState --value rigwright"*) cat active ;;
  show*) echo inactive ;;
  is-enabled*) echo enabled ;;
  *) echo "$*" >> asked; ! grep -qxF -- "$*" fails ;;
esac
"""


@dataclass
class HostFolder:
    """One host."""

    root: Path

    def __post_init__(self) -> None:
        for folder in (self.config / "generations", self.config / "credentials", self.units, self.systemd, self.run):
            folder.mkdir(parents=True)
        write_stand_in(self.root / "bin", "systemctl", SYSTEMCTL)
        write_stand_in(self.root / "bin", "ss", f"cat {self.systemd}/listening")
        write_stand_in(self.root / "bin", "journalctl", 'echo "the log of $*"')
        self.set_answers(
            description="",
            reload="no\n\nno\n",
            processes="",
            sockets="",
            listening="",
            state="",
            active="inactive\n",
            asked="",
            fails="",
        )

    @property
    def config(self) -> Path:
        return self.root / "etc"

    @property
    def ledger(self) -> Path:
        return self.root / "owned"

    @property
    def software(self) -> Path:
        return self.root / "opt"

    @property
    def units(self) -> Path:
        return self.root / "units"

    @property
    def systemd(self) -> Path:
        return self.root / "systemd"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def systemctl_commands(self) -> list[str]:
        """The orders to systemctl."""
        return (self.systemd / "asked").read_text().splitlines()

    @property
    def current(self) -> str:
        return str((self.config / "current").readlink())

    def set_answers(self, **answers: str) -> None:
        """Set what systemctl answers."""
        for name, text in answers.items():
            (self.systemd / name.replace("state_", "state-")).write_text(text)

    def write_generation(self, number: int, generation: Generation) -> Path:
        """Put a generation there, as the deploy does."""
        folder = self.config / "generations" / str(number)
        folder.mkdir()
        archive = "\n".join(pack_generation(generation)) + "\n"
        command = ["sh", "-c", f"base64 -d | tar -x --no-same-owner -C {folder}"]
        short_programs.run_program(command, input=archive, check=True)
        (folder / META).write_text(f"{generation.digest} 2026-11-01T12:00:00Z\n")
        (folder / PROVEN).touch()
        return folder

    def run_script(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script with the stand-ins, its fixed places moved into the folder."""
        moves = {
            UNIT_FOLDER: self.units,
            STARTED_FROM_FOLDER: self.run / "rigwright",
            "/run/credentials": self.run / "credentials",
        }
        for place, folder in moves.items():
            script = script.replace(place, str(folder))
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return short_programs.run_program(["sh", "-c", script], env={"PATH": path})

    def read_state(self) -> ObservedServing:
        """The findings of the state script."""
        done = self.run_script(
            render_state_query(
                str(self.config),
                str(self.software),
                str(self.config / "starts"),
                str(self.config / "build"),
                str(self.ledger),
            )
        )
        assert done.returncode == 0, done.stderr
        return serving_state.parse(done.stdout.splitlines())

    def generation_goal(self, number: int) -> ActivationGoal:
        """A generation that lies there, as a goal."""
        return goal_of(next(kept for kept in self.read_state().generations if kept.number == number))
