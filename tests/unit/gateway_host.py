"""A folder that stands in for a host with a gateway: its scripts run in a shell of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from checks.looking import Box
from rigwright.gateway import given
from rigwright.gateway.given import CREDENTIALS_RECORD, GATEWAY, KEYS_RECORD, ROUTER, Found
from rigwright.model.entry import Roots
from rigwright.model.rig import Rig
from roles import root
from tests.unit import programs, samples
from tests.unit.scripts import stand_in

# A unit's state stands in a file; a reload runs what the unit's ExecReload does.
SYSTEMCTL = """
for unit; do :; done
case $1 in
  show) cat "$0.state.$unit" 2>/dev/null || echo inactive ;;
  reload) echo "$unit" >> "$0.reloads"; sh "$0.reload.$unit" ;;
  is-active) cat "$0.state.$unit" 2>/dev/null || { echo inactive; exit 3; } ;;
esac
"""
# Whoever gives up root's rights is on the record: with which words, not with what it was given.
SETPRIV = 'echo "$*" >> "$0.words"; while case $1 in --*) ;; *) false ;; esac; do shift; done; exec "$@"'


class GatewayHost:
    """One host, on which a generation has a gateway's folder."""

    name = "box"

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.config, self.run = folder / "etc", folder / "run"
        self.credentials = self.config / "credentials"
        self.current = self.config / "generations/1/gateway"
        for made in (self.credentials, self.current, self.run / GATEWAY, self.run / ROUTER):
            made.mkdir(parents=True)
        (self.config / "current").symlink_to("generations/1")
        self.systemctl = stand_in(self.bin, "systemctl", SYSTEMCTL)
        self.setpriv = stand_in(self.bin, "setpriv", SETPRIV)
        stand_in(self.bin, "chown", "true")
        # the router, as it says by its socket which keys it has read last
        self.curl = stand_in(self.bin, "curl", f"sha256sum < {self.run / ROUTER / 'keys.json'}")
        self.connector = self
        self.data: dict[str, object] = {}

    @property
    def rig(self) -> Rig:
        roots = Roots.model_construct(
            models=str(self.folder / "models"),
            state=str(self.folder),
            config=str(self.config),
            software=str(self.folder / "opt"),
        )
        return samples.rig(roots=roots, inventory=str(self.folder / "rig.py"))

    def box(self, name: str = "box") -> Box:
        return Box(name, self.rig, self)

    def moved(self, script: str) -> str:
        owner = f"{self.folder.owner()} {self.folder.group()}"
        return script.replace("/run/", f"{self.run}/").replace("root root 600", f"{owner} 600")

    def sh(self, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        return programs.run(["sh", "-c", self.moved(script)], env={"PATH": path}, input=stdin)

    def answer(self, target: Any, script: str, stdin: str = "", limit: float = 0) -> root.Answer:
        """In place of roles.root.run."""
        done = target.sh(script, stdin)
        return root.Answer(done.returncode, done.stdout.encode(), done.stderr.encode())

    def installed(self, engine_keys: dict[str, str] | None = None, listeners: tuple[str, ...] = ()) -> None:
        """Have a generation's programs and lists."""
        files = given.programs(self.rig) | given.lists(engine_keys or {}, listeners)
        for name, text in files.items():
            (self.current / name).write_text(self.moved(text))
            (self.current / name).chmod(0o755)
        for unit, program in ((ROUTER, f"{self.current}/give-keys"), (GATEWAY, f"{self.current}/prepare")):
            self.systemctl.with_name(f"systemctl.reload.{unit}.service").write_text(f"{program}\n")

    def is_(self, user: str, state: str) -> None:
        """Set the state of a unit, by its user."""
        self.systemctl.with_name(f"systemctl.state.{user}.service").write_text(f"{state}\n")

    def program(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the generation's, as systemd does."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return programs.run([str(self.config / "current/gateway" / name), *words], env={"PATH": path})

    @property
    def reloads(self) -> list[str]:
        """The units that were reloaded, in their order."""
        path = self.systemctl.with_name("systemctl.reloads")
        return path.read_text().split() if path.exists() else []

    @property
    def words(self) -> str:
        """All that stood in arguments of programs that gave up root's rights."""
        return self.setpriv.with_name("setpriv.words").read_text()

    def record(self, path: str) -> str:
        """What a record says; empty without one."""
        moved = Path(self.moved(path))
        return moved.read_text().strip() if moved.exists() else ""

    @property
    def keys_record(self) -> str:
        return self.record(KEYS_RECORD)

    @property
    def keys_record_path(self) -> Path:
        return Path(self.moved(KEYS_RECORD))

    @property
    def credentials_record(self) -> str:
        return self.record(CREDENTIALS_RECORD)

    def look(self) -> Found:
        done = self.sh(given.script(self.rig))
        assert done.stderr == ""
        return given.parse(done.stdout.splitlines())

    def fact(self, module: Any, monkeypatch: Any, executing: bool = True) -> list[str]:
        """Have operations look at it; what is said where nothing is to be done."""
        quiet: list[str] = []

        def get_fact(fact: Any, script: str) -> Any:
            done = self.sh(script)
            assert done.stderr == ""
            return fact().read(done.stdout.splitlines())

        there = SimpleNamespace(get_fact=get_fact, noop=quiet.append)
        monkeypatch.setattr(module, "host", there)
        monkeypatch.setattr(module, "state", SimpleNamespace(is_executing=executing))
        return quiet
