"""ansible-core beside us: its environment, and what benchmarks/playbook.yml needs to know of a rig."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks import comparison_environments
from lab.hosts import LabHost
from rigwright.fetch_job_spec import authority_path
from rigwright.host.generation_layout import file_mode
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig, account_names
from rigwright.monitoring.self_check import NAME, STARTERS, program_folder
from rigwright.plan.host_probe import required_packages
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import HOME
from rigwright.plan.self_check_declaration import render_self_check
from rigwright.project_root import ROOT
from rigwright.serving.instance_units import DIGEST_VARIABLE, credential_path
from rigwright.weights.verification import (
    PACKAGE,
    REHASH_UNITS,
    recorded_file,
    records_folder,
    render_rehash_units,
    weights_program_folder,
)
from roles.artefact_fetch import PROGRAMS

LOCK = ROOT / "locks" / "bench.txt"
VENV = ROOT / ".venv-bench"
PLAYBOOK = ROOT / "benchmarks" / "playbook.yml"
PERSIST = 600  # seconds a connection stays open for the next run: ansible does not connect anew in a timed one

SETTINGS = """\
[defaults]
inventory = {folder}/hosts.json
forks = {forks}
host_key_checking = False
interpreter_python = /usr/bin/python3
retry_files_enabled = False
home = {folder}/home

[connection]
pipelining = True

[ssh_connection]
pipelining = True
control_path_dir = {folder}/control
ssh_args = -o ControlMaster=auto -o ControlPersist={persist}s -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
"""


def install() -> None:
    """Prepare ansible's own environment from its lock, once.

    Raises:
        RuntimeError: pip fails; its words are the text.
    """
    comparison_environments.install(LOCK, VENV)


def variables(rig: Rig, facts: HostFacts, number: int) -> dict[str, object]:
    """The playbook's variables for a converged host.

    Args:
        rig: The rig.
        facts: The findings of a probe there.
        number: Of the generation that it serves.
    """
    roots = rig.roots
    asked = build_target_state(rig, facts)
    host_tools, wanted = asked.tools, asked.generation
    engines = [rig.roots.installation_path(one.folder) for one in asked.installations.values()]
    keys = [credential_path(rig.roots, instance) for instance in rig.instances]
    current = f"{roots.config}/current"
    rehashing = render_rehash_units(rig.roots)
    self_check = render_self_check(rig, facts.system)
    carried = f"{weights_program_folder(rig.roots)}/{PACKAGE}"
    unit_links = {f"{UNIT_FOLDER}/{name}": f"{current}/units/{name}" for name in wanted.unit_files}
    open_folders = (
        *(roots.state, rig.roots.jobs, records_folder(rig.roots), roots.software, rig.roots.installations),
        *(roots.models, roots.config, rig.roots.generations, weights_program_folder(rig.roots), carried),
        *(program_folder(roots), f"{program_folder(roots)}/{NAME}"),
    )
    links = {
        current: f"generations/{number}",
        **{f"{current}/{path}": target for path, target in wanted.links.items()},
        **unit_links,
    }
    return {
        "folders": [
            *({"path": path, "mode": "0755"} for path in open_folders),
            {"path": rig.roots.credentials, "mode": "0700"},
        ],
        "users": list(account_names(rig)),
        "service_home": HOME,
        "packages": list(required_packages(rig)),
        "authority": authority_path(rig.roots),
        "tools_marker": host_tools.marker,
        "engines": engines,
        "weights": [
            {
                "path": rig.roots.weight_path(one),
                "record": f"{records_folder(rig.roots)}/{recorded_file(rig.roots, one).record}",
            }
            for one in loaded_weights(rig.instances)
        ],
        # as sha256sum reads them
        "programs": "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {carried}/{path.name}\n"
            for path in sorted(PROGRAMS.glob("*.py"))
        ),
        "keys": keys,
        "texts": [
            *(
                {"path": f"{current}/{path}", "text": text, "mode": f"0{file_mode(text)}"}
                for path, text in sorted(wanted.files.items())
            ),
            *({"path": path, "text": text, "mode": "0644"} for path, text in (rehashing | self_check).items()),
        ],
        "links": [{"path": path, "target": target} for path, target in links.items()],
        "unit_folder": UNIT_FOLDER,
        "found_in": [roots.software, rig.roots.installations, rig.roots.credentials],
        "declared": [
            *(rig.roots.installations, host_tools.folder, weights_program_folder(rig.roots)),
            *(*engines, *keys, *unit_links, *rehashing, *self_check),
        ],
        "enabled": ["rigwright.target", REHASH_UNITS[0], *STARTERS],
        "instances": [
            {
                "unit": one.name,
                "mark": f"{DIGEST_VARIABLE}={one.digest}",
                "record": f"{STARTED_FROM_FOLDER}/{one.name}",
                "started_from": one.unit_state.started_from,
                "key": key,
            }
            for one, key in zip(wanted.units, keys, strict=True)
        ],
        "ports": [
            {
                "socket": one.socket_unit,
                "unit": one.unit,
                "record": f"{STARTED_FROM_FOLDER}/{one.unit}",
                "started_from": one.unit_state.started_from,
            }
            for one in wanted.listeners
        ],
    }


class Peer:
    """ansible-core over a lab's hosts."""

    def __init__(self, folder: Path, hosts: Sequence[LabHost], told: dict[str, dict[str, object]]) -> None:
        """Write its settings and inventory into a folder.

        Args:
            folder: A new one.
            hosts: The hosts.
            told: Host name -> the playbook's variables.
        """
        self.folder = folder
        (folder / "control").mkdir(parents=True)
        (folder / "ansible.cfg").write_text(SETTINGS.format(folder=folder, forks=max(5, len(hosts)), persist=PERSIST))
        inventory = {
            host.name: {
                "ansible_host": host.address,
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(host.key),
                **told[host.name],
            }
            for host in hosts
        }
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
        self.environment = os.environ | {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}

    def command(self, hosts: Sequence[LabHost]) -> list[str]:
        """The command line for some of its hosts."""
        names = ",".join(host.name for host in hosts)
        return [str(VENV / "bin" / "ansible-playbook"), "--limit", names, str(PLAYBOOK)]

    def close(self) -> None:
        """End the connections that it keeps open."""
        for path in (self.folder / "control").iterdir():
            command = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "host"]
            subprocess.run(command, capture_output=True, check=False)


def changed_tasks(output: str) -> int:
    """Return how many tasks changed something on all hosts, by the end of ansible-playbook's output.

    Raises:
        RuntimeError: it has no line of a host, or a task failed.
    """
    rows = re.findall(r"^\S+ +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", output, re.MULTILINE)
    if not rows or any(int(unreachable) + int(failed) for _, unreachable, failed in rows):
        raise RuntimeError(f"the playbook failed:\n{output[-3000:]}")
    return sum(int(changed) for changed, *_ in rows)


def installed_version() -> str:
    """Which ansible-core the environment has."""
    return comparison_environments.installed_version(VENV, "ansible-core")
