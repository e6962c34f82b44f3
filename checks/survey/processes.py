"""Processes of services, and attempts to leave their sandboxes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from checks.survey.section import TRY, Section, SurveyScope
from checks.survey.units import expected_units
from checks.unit_settings import parse_unit_settings, split_quoted_words
from rigwright.engines import kind_of
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT
from rigwright.host.deploy_lock_state import DEPLOY_LOCK, LOCKS
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.instance import COMPILED
from rigwright.model.rig import account_names
from rigwright.serving.instance_units import ENV, LOOPBACK, listener_units
from rigwright.weights import weight_server

TRIES = f"{TRY}{secrets.token_hex(4)}-"
"""The same of this run."""


@dataclass(frozen=True)
class KernelProcess:
    """A process, in the kernel's words (proc(5))."""

    pid: int
    exe: str
    words: list[str]
    variables: list[str]
    """`NAME=VALUE`, as it was started with; its own changes to them are here, too."""
    status: dict[str, str]
    limits: dict[str, list[str]]
    """Resource -> soft and hard limit."""
    group: str
    """Its control group."""
    spaces: dict[str, str]
    """Kind of namespace -> the one that it is in."""
    oom: int
    threads: list[str]
    """`NICE POLICY PRIORITY`, each once."""
    ioprio: int
    code: list[str]
    """Where its code is: `file PATH`, `deleted PATH`, `replaced PATH`, `closures PATH` (libffi's, by their content),
    `unnamed`, or `unjudged` and why: more than is read.
    """

    @property
    def environment(self) -> dict[str, str]:
        """Its variables."""
        return dict(one.partition("=")[::2] for one in self.variables if "=" in one)


@dataclass(frozen=True)
class ServiceProcesses:
    """A service and its processes."""

    main: int
    """Its main process; 0 for none."""
    group: str
    program: str
    """Where the path of what it starts leads."""
    processes: list[KernelProcess]
    """The main process first."""
    elsewhere: list[str]
    """Paths at which it sees something else than the host does."""
    interfaces: list[str]
    """Of the network that its main process is in."""


@dataclass(frozen=True)
class ForeignProcess:
    """A process of another user than Rigwright's."""

    pid: int
    what: str
    words: list[str]


@dataclass(frozen=True)
class Processes:
    """All of them."""

    units: dict[str, ServiceProcesses]
    groups: dict[str, dict[str, str]]
    """Control group, of our services and of what those are in -> what limits it."""
    first: KernelProcess
    """The host's first process, without its words."""
    code: dict[str, str]
    """File that a service runs code from -> what is wrong with it."""
    """The files that the loader puts into every program."""
    others: list[ForeignProcess]
    shared: list[str]
    """The files of service users in the host's /dev/shm."""


def split_command(text: str) -> list[str]:
    """The words of what a service starts."""
    return next((split_quoted_words(value) for name, value in parse_unit_settings(text) if name == "ExecStart"), [])


def executed_command(text: str) -> list[str]:
    """The words of a service's final process: `env NAME=VALUE ... PROGRAM` executes PROGRAM in its place."""
    words = split_command(text)
    if words[:1] != [ENV]:
        return words
    return list(dropwhile(lambda word: "=" in word, words[1:]))


def _process_questions(scene: SurveyScope) -> object:
    rig, desired = scene.rig, scene.desired
    units: dict[str, list[str]] = {}
    for one in expected_units(scene).values():
        if one.kind == "service" and any(
            line == ("Type", kind) for line in parse_unit_settings(one.text) for kind in ("exec", "forking", "notify")
        ):
            units[one.name] = executed_command(one.text)[:1]
    for made, instance in zip(desired.generation.units, rig.instances, strict=True):
        folder = rig.roots.installation_path(desired.installations[instance.installed_as].folder)
        units[made.name] += [folder, *(rig.roots.weight_path(artefact) for artefact in instance.weights)]
        units[made.name] += [rig.roots.program_path(name) for name in made.programs]
    if rig.gateway:
        units[GATEWAY_UNIT].append(f"{rig.roots.config}/current/gateway/nginx.conf")
    if rig.share:
        units[weight_server.SHARE_UNIT] += [weight_server.config_path(rig.roots), rig.roots.models]
    folders = [f"{rig.roots.installations}/", f"{rig.roots.software}/cuda-", f"{COMPILED}/", *_toolkits(scene)]
    return {
        "units": units,
        "folders": folders,
        "views": [*folders, *(f"{one}/" for one in (rig.roots.software, rig.roots.generations, rig.roots.models))],
        "engines": f"{rig.roots.installations}/",
        "users": list(account_names(rig)),
        "except": TRY,
    }


def _toolkits(scene: SurveyScope) -> list[str]:
    found = {made.toolkit.folder for made in scene.desired.installations.values() if made.toolkit}
    return sorted({f"{folder}/" for folder in [*found, scene.rig.toolkit.own_root] if folder})


PROCESSES: Section[Processes] = Section(
    "processes",
    Processes,
    _process_questions,
    blind="memory changed in place, without a file: mapped memory is judged by its file, closures by their form",
    phase="probed",
    start_order=4,
)


PROGRAM = Path(__file__).resolve().parents[1] / "sandbox_breakout.py"
# Beside what a rig names: ssh, a resolver, and folders of the distribution's.
ADDRESSES = ((LOOPBACK, 22), ("127.0.0.53", 53), ("::1", 22))
FOLDERS = (
    *("/", "/boot", "/etc", UNIT_FOLDER, "/home", "/opt", "/root", "/run", "/srv", "/usr/local/bin", "/var/lib"),
)
SECRETS = ("/etc/shadow", "/root/.ssh/authorized_keys", "/etc/ssh/ssh_host_ed25519_key")


@dataclass(frozen=True)
class EscapeResult:
    """The successful attempts, in words; each is empty where the sandbox works."""

    processes: list[str]
    network: list[str]
    files: list[str]
    devices: list[str]
    privileges: list[str]


def _escape_questions(scene: SurveyScope) -> object:
    rig, desired = scene.rig, scene.desired
    if not rig.instances:
        return None
    addresses = [*ADDRESSES, *((LOOPBACK, one.port) for one in rig.instances)]
    addresses += [(address, 22) for address in sorted(desired.facts.addresses)]
    roots = [rig.roots.models, rig.roots.software, rig.roots.state, rig.roots.config, STARTED_FROM_FOLDER]
    asked = {}
    for instance in rig.instances:
        service = kind_of(instance).service(rig, instance, desired.installations[instance.installed_as])
        if service.container:
            continue
        sandbox = service.sandbox
        asked[instance.unit] = {
            "own": [instance.socket, f"/run/credentials/{instance.unit}/api-key"],
            "cards": bool(instance.cards),
            "asked": {
                "addresses": addresses,
                "secrets": list(SECRETS),
                "locks": [LOCKS, DEPLOY_LOCK],
                "folders": [*FOLDERS, *roots],
                "families": list(sandbox.families),
                "writes_code": sandbox.writes_code,
            },
        }
    units = sorted({name for one in rig.instances for name in (one.unit, *listener_units(one.port))})
    return {
        "program": PROGRAM.read_text(),
        "instances": asked,
        "units": units,
        "credentials": [rig.roots.credentials, "/run/credentials"],
        "name": TRIES,
    }


ESCAPES: Section[dict[str, EscapeResult]] = Section(
    "sandbox_escapes",
    dict[str, EscapeResult],
    _escape_questions,
    limit=60.0,
    blind="escapes that are not among those tried: a sandbox is tested, not proven",
    phase="probed",
    start_order=2,
)
"""By instance's service."""
