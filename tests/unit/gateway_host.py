"""A folder that stands in for a host with a gateway: its scripts run in a shell of this machine."""

import os
import subprocess
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from checks.connections import ConnectedHost
from rigwright.gateway import secrets_distribution
from rigwright.gateway.secrets_distribution import CREDENTIALS_RECORD, GATEWAY, KEYS_RECORD, ROUTER, GatewaySecretFacts
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from roles import root_shell
from tests.unit import samples, short_programs
from tests.unit.rendered_scripts import write_stand_in

# A unit's state stands in a file; a reload runs what the unit's ExecReload does.
SYSTEMCTL = """
for unit; do :; done
case $1 in
  show) cat "$0.state.$unit" 2>/dev/null || echo inactive ;;
  reload) echo "$unit" >> "$0.reloads"; sh "$0.reload.$unit" ;;
  is-active) cat "$0.state.$unit" 2>/dev/null || { echo inactive; exit 3; } ;;
esac
"""
# Dropping root's rights is on the record: with its words, not with its input.
SETPRIV = 'echo "$*" >> "$0.words"; while case $1 in --*) ;; *) false ;; esac; do shift; done; exec "$@"'


class GatewayFolderHost:
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
        self.systemctl = write_stand_in(self.bin, "systemctl", SYSTEMCTL)
        self.setpriv = write_stand_in(self.bin, "setpriv", SETPRIV)
        write_stand_in(self.bin, "chown", "true")
        # the router, as it says by its socket which keys it has read last
        self.curl = write_stand_in(self.bin, "curl", f"sha256sum < {self.run / ROUTER / 'keys.json'}")
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
        return samples.sample_rig(roots=roots, inventory=str(self.folder / "rig.py"))

    def box(self, name: str = "box") -> ConnectedHost:
        return ConnectedHost(name, self.rig, self)

    def relocate_script(self, script: str) -> str:
        owner = f"{self.folder.owner()} {self.folder.group()}"
        return script.replace("/run/", f"{self.run}/").replace("root root 600", f"{owner} 600")

    def run_script(self, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        return short_programs.run_program(["sh", "-c", self.relocate_script(script)], env={"PATH": path}, input=stdin)

    def answer_command(
        self, target: Any, script: str, stdin: str = "", limit: float = 0
    ) -> root_shell.RootCommandResult:
        """In place of roles.root_shell.run_command."""
        done = target.run_script(script, stdin)
        return root_shell.RootCommandResult(done.returncode, done.stdout.encode(), done.stderr.encode())

    def install_generation(self, engine_keys: dict[str, str] | None = None, listeners: tuple[str, ...] = ()) -> None:
        """Have a generation's programs and lists."""
        files = secrets_distribution.render_root_programs(
            self.rig.roots, self.rig.accounts
        ) | secrets_distribution.render_name_lists(engine_keys or {}, listeners)
        for name, text in files.items():
            (self.current / name).write_text(self.relocate_script(text))
            (self.current / name).chmod(0o755)
        for unit, program in ((ROUTER, f"{self.current}/give-keys"), (GATEWAY, f"{self.current}/prepare")):
            self.systemctl.with_name(f"systemctl.reload.{unit}.service").write_text(f"{program}\n")

    def set_unit_state(self, user: str, state: str) -> None:
        """Set the state of a unit, by its user."""
        self.systemctl.with_name(f"systemctl.state.{user}.service").write_text(f"{state}\n")

    def run_program(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the generation's, as systemd does."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return short_programs.run_program([str(self.config / "current/gateway" / name), *words], env={"PATH": path})

    @property
    def reloaded_units(self) -> list[str]:
        """The units that were reloaded, in their order."""
        path = self.systemctl.with_name("systemctl.reloads")
        return path.read_text().split() if path.exists() else []

    @property
    def setpriv_arguments(self) -> str:
        """All that stood in arguments of programs that gave up root's rights."""
        return self.setpriv.with_name("setpriv.words").read_text()

    def read_record(self, path: str) -> str:
        """The contents of a record; empty without one."""
        moved = Path(self.relocate_script(path))
        return moved.read_text().strip() if moved.exists() else ""

    @property
    def keys_record(self) -> str:
        return self.read_record(KEYS_RECORD)

    @property
    def keys_record_path(self) -> Path:
        return Path(self.relocate_script(KEYS_RECORD))

    @property
    def credentials_record(self) -> str:
        return self.read_record(CREDENTIALS_RECORD)

    def read_secrets_facts(self) -> GatewaySecretFacts:
        done = self.run_script(secrets_distribution.render_state_query(self.rig.roots))
        assert done.stderr == ""
        return secrets_distribution.parse(done.stdout.splitlines())

    def run_operations(self, module: Any, monkeypatch: Any, executing: bool = True) -> list[str]:
        """Have operations look at it; the output where nothing is to be done."""
        quiet: list[str] = []

        def get_fact(fact: Any, script: str) -> Any:
            done = self.run_script(script)
            assert done.stderr == ""
            return fact().read(done.stdout.splitlines())

        there = SimpleNamespace(get_fact=get_fact, noop=quiet.append)
        monkeypatch.setattr(module, "host", there)
        monkeypatch.setattr(module, "state", SimpleNamespace(is_executing=executing))
        return quiet

    def carry_out(self, operation: Any, **values: object) -> list[str]:
        """Run an operation's commands; returns their scripts."""
        scripts = []
        parts = {name: getattr(self.rig, name) for name in signature(operation._inner).parameters if name not in values}
        for command in operation._inner(**parts, **values):
            scripts.append(command.get_raw_value())
            lines = command.connector_arguments.get("_stdin") or [""]
            assert isinstance(lines, list)
            words = ["sh", "-c", self.relocate_script(command.get_raw_value())]
            done = subprocess.run(
                words, env={"PATH": f"{self.bin}:{os.environ['PATH']}"}, input="".join(lines), text=True, check=False
            )
            assert done.returncode == 0, scripts
        return scripts
