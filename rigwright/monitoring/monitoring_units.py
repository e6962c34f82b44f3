"""The monitoring of a host: its units and all that they read, as text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from rigwright.fetch_job_spec import ToolEnvironment, render_requirements
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.api_keys import resolve_secret
from rigwright.model.monitoring_schema import (
    Monitoring,
    MonitoringServer,
    ScrapeTarget,
    all_service_users,
    allowed_scrapers,
    format_endpoint,
)
from rigwright.model.roots import Roots
from rigwright.monitoring import config_files
from rigwright.monitoring.config_files import LOOPBACK, SINCE, load_receiver_secret, receiver_secret_files
from rigwright.monitoring.scrape_targets import render_target_files
from rigwright.monitoring.textfile import textfile_folder
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import GPU_EXPORTER

if TYPE_CHECKING:
    from rigwright.model.rig import Rig

PROGRAM = Path(__file__).resolve().parents[2] / "roles/monitoring/host/gpu.py"
# First line of units and files; another one than that of what a generation has.
OWNED = "# Written by rigwright to watch; changes here are undone by the next deploy."


@dataclass(frozen=True)
class PackagedProgram:
    """One of the programs, as distributions package it."""

    package: str
    """Empty where none does."""
    floor: str
    """The oldest version whose settings are these: Debian 12's."""
    proof: str = ""
    """The program that judges its settings before they count."""

    @property
    def program(self) -> str:
        """The program of the unit."""
        return f"/usr/bin/{self.package}"

    @property
    def packaged_unit(self) -> str:
        """The unit that the package starts, on all addresses, as it is installed."""
        return f"{self.package}.service"


# That of node exporter has no settings; its collectors for disks and the like come with its recommended packages.
PACKAGED_PROGRAMS = {
    "node": PackagedProgram("prometheus-node-exporter", "1.5.0"),
    # ours, in an environment of its own
    "gpu": PackagedProgram("", ""),
    "prometheus": PackagedProgram("prometheus", "2.42.0", "promtool check config"),
    "alertmanager": PackagedProgram("prometheus-alertmanager", "0.25.0", "amtool check-config"),
    "blackbox": PackagedProgram(
        "prometheus-blackbox-exporter", "0.23.0", "prometheus-blackbox-exporter --config.check --config.file"
    ),
}
# Services that keep their data in a folder of their own.
STATEFUL_PROGRAMS = ("prometheus", "alertmanager")
# Of the host's memory at most: Prometheus' own grows with the number of figures, the others' does not.
MEMORY = {"prometheus": "50%"}
MEMORY_OF_OTHERS = "512M"
# Files open at once, each client's connection among them: Prometheus keeps its data in many.
FILES, FILES_OF_OTHERS = {"prometheus": 16384}, 1024
# Clients that ask Prometheus at once: a Grafana has a handful of connections, and 512 are its own default.
CLIENTS = 64
# Users that the scripts of their packages make, and leave behind (postinst and postrm of Debian 12).
PACKAGED_USER = "prometheus"
# The collectors that alerts and dashboards need, and none that looks for programs or buses.
COLLECTORS = (
    *("cpu", "diskstats", "filesystem", "hwmon", "loadavg", "meminfo", "netdev", "os", "pressure", "stat"),
    *("textfile", "timex", "uname", "vmstat"),
)


def unit_name(name: str) -> str:
    """A service's unit; no instance's: those are rigwright-NAME."""
    return f"rigwright_{name}.service"


@dataclass(frozen=True)
class MonitoringService:
    """One that runs on a host."""

    name: str
    unit: str
    """The text of its unit."""
    files: Mapping[str, str]
    """Path of what it reads when it starts -> text; those that it is asked to judge last."""
    secrets: tuple[str, ...]
    """Paths of what it is given as credentials."""
    at: tuple[str, int]
    """The address and port that it listens on."""
    clients: tuple[str, ...]
    """Networks beside the host itself that may ask it."""
    floor: str
    """The oldest version whose settings are these; empty if no distribution packages it."""

    @property
    def unit_name(self) -> str:
        """Its unit."""
        return unit_name(self.name)

    @property
    def kind(self) -> PackagedProgram:
        """The kind of program."""
        return PACKAGED_PROGRAMS[self.name]

    @property
    def endpoint(self) -> str:
        """`ADDRESS:PORT`."""
        return format_endpoint(*self.at)

    def digest(self, secrets: Mapping[str, str]) -> str:
        """SHA-256 of all that it is started from, as its unit writes it down.

        Args:
            secrets: Path of a secret -> what is in the file.
        """
        texts = [self.unit, *self.files.values(), *(f"{secrets[path]}\n" for path in self.secrets)]
        return hashlib.sha256("".join(texts).encode()).hexdigest()


def monitoring_folder(roots: Roots) -> str:
    """Where what they read lies on the host."""
    return f"{roots.config}/monitoring"


def data_folder(roots: Roots, name: str) -> str:
    """The folder of a service's data."""
    return f"{roots.state}/monitoring/{name}"


def secret_path(roots: Roots, name: str) -> str:
    """Where a receiver's token, or its address, lies on the host: `RECEIVER.token`, `RECEIVER.url`."""
    return f"{roots.credentials}/monitoring-{name}"


def secrets_by_path(inventory: str, roots: Roots, monitoring: Monitoring | None) -> dict[str, str]:
    """Path on the host -> secrets of receivers, which no other user may read.

    Raises:
        ValueError: one cannot be read.
    """
    at = Path(inventory).parent
    given = receiver_secret_files(monitoring.server) if monitoring and monitoring.server else {}
    return {
        secret_path(roots, name): load_receiver_secret(name, resolve_secret(at, entry)) for name, entry in given.items()
    }


def render_targets(roots: Roots, scrape_targets: tuple[ScrapeTarget, ...]) -> dict[str, str]:
    """Path -> text of what Prometheus is to ask; it reads these again by itself."""
    return (
        {
            f"{monitoring_folder(roots)}/targets/{name}": text
            for name, text in render_target_files(scrape_targets).items()
        }
        if scrape_targets
        else {}
    )


def gpu_exporter_tools(roots: Roots, gpu_exporter: tuple[Artefact, ...]) -> ToolEnvironment:
    """The environment of what tells of cards."""
    text = render_requirements(gpu_exporter)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return ToolEnvironment(text, f"{roots.software}/{GPU_EXPORTER}-{digest}")


def monitoring_services(rig: Rig) -> tuple[MonitoringService, ...]:
    """All that run on a rig; none where it declares none."""
    monitoring = rig.monitoring
    if not monitoring:
        return ()
    made = [_node_service(rig.roots, rig.accounts, monitoring), *([_gpu_service(rig, monitoring)] if rig.cards else [])]
    if server := monitoring.server:
        made += [
            _blackbox_service(rig.roots, rig.accounts, rig.scrape_targets, server),
            _alertmanager_service(rig.roots, rig.accounts, server),
            _prometheus_service(rig.roots, rig.accounts, rig.scrape_targets, monitoring, server),
        ]
    return tuple(made)


def _node_service(roots: Roots, accounts: ServiceAccounts, monitoring: Monitoring) -> MonitoringService:
    words = [f"--collector.{name}" for name in COLLECTORS]
    words += ["--collector.disable-defaults", f"--collector.textfile.directory={textfile_folder(roots)}"]
    at = (monitoring.address, monitoring.node_port)
    allow = allowed_scrapers(monitoring)
    return _build_service(
        roots, accounts, "node", "its own figures", words, at, allow=allow, clients=monitoring.scrapers
    )


def _gpu_service(rig: Rig, monitoring: Monitoring) -> MonitoringService:
    path = f"{monitoring_folder(rig.roots)}/gpu.py"
    limits = ",".join("-" if limit is None else str(limit) for limit in rig.driver.power_limits(len(rig.cards)))
    words = [
        f"{gpu_exporter_tools(rig.roots, rig.gpu_exporter).folder}/bin/python",
        "-I",
        "-B",
        path,
        f"--power-limits={limits}",
    ]
    at = (monitoring.address, monitoring.gpu_port)
    words += [f"--address={at[0]}", f"--port={at[1]}"]
    files = {path: PROGRAM.read_text()}
    allow = allowed_scrapers(monitoring)
    return _build_service(
        rig.roots, rig.accounts, "gpu", "its cards", words, at, files, allow=allow, clients=monitoring.scrapers
    )


def _prometheus_service(
    roots: Roots,
    accounts: ServiceAccounts,
    scrape_targets: tuple[ScrapeTarget, ...],
    monitoring: Monitoring,
    server: MonitoringServer,
) -> MonitoringService:
    asked = {box.address for box in scrape_targets} | {door.address for box in scrape_targets for door in box.doors}
    words = [
        f"--config.file={monitoring_folder(roots)}/prometheus.yml",
        f"--storage.tsdb.path={data_folder(roots, 'prometheus')}",
        f"--storage.tsdb.retention.time={server.retention_days}d",
        f"--storage.tsdb.retention.size={server.size_gb}GB",
        f"--web.max-connections={CLIENTS}",
        # a client that says nothing is closed after that; 5 minutes by itself
        "--web.read-timeout=1m",
    ]
    files = {
        f"{monitoring_folder(roots)}/rules.yml": config_files.render_rules(server, OWNED),
        f"{monitoring_folder(roots)}/prometheus.yml": config_files.render_prometheus(
            server, monitoring_folder(roots), OWNED
        ),
    }
    own = str(ip_network(monitoring.address))
    allow = (*server.allow, own, f"{LOOPBACK}/32", *(str(ip_network(one)) for one in sorted(asked)))
    about = f"metrics of {len(scrape_targets)} boxes, for {server.retention_days} days or {server.size_gb} GB"
    at = (monitoring.address, server.port)
    return _build_service(roots, accounts, "prometheus", about, words, at, files, allow=allow, clients=server.allow)


def _alertmanager_service(roots: Roots, accounts: ServiceAccounts, server: MonitoringServer) -> MonitoringService:
    wanted = receiver_secret_files(server)
    given = {name: f"/run/credentials/{unit_name('alertmanager')}/{name}" for name in wanted}
    files = {f"{monitoring_folder(roots)}/alertmanager.yml": config_files.render_alertmanager(server, given, OWNED)}
    words = [
        f"--config.file={monitoring_folder(roots)}/alertmanager.yml",
        f"--storage.path={data_folder(roots, 'alertmanager')}",
        # it is alone: without this it listens for others of its kind, everywhere
        "--cluster.listen-address=",
    ]
    paths = {name: secret_path(roots, name) for name in wanted}
    at = (LOOPBACK, server.alertmanager_port)
    floor = SINCE if any(one.url_file for one in server.receivers.values()) else PACKAGED_PROGRAMS["alertmanager"].floor
    return _build_service(roots, accounts, "alertmanager", "receivers of alerts", words, at, files, paths, floor=floor)


def _blackbox_service(
    roots: Roots, accounts: ServiceAccounts, scrape_targets: tuple[ScrapeTarget, ...], server: MonitoringServer
) -> MonitoringService:
    files = {f"{monitoring_folder(roots)}/blackbox.yml": config_files.render_blackbox(OWNED)}
    doors = sorted({str(ip_network(door.address)) for box in scrape_targets for door in box.doors})
    words = [f"--config.file={monitoring_folder(roots)}/blackbox.yml"]
    at = (LOOPBACK, server.blackbox_port)
    about = "gateways, as clients find them"
    return _build_service(roots, accounts, "blackbox", about, words, at, files, allow=(f"{LOOPBACK}/32", *doors))


def _build_service(
    roots: Roots,
    accounts: ServiceAccounts,
    name: str,
    about: str,
    words: Iterable[str],
    at: tuple[str, int],
    files: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
    *,
    allow: tuple[str, ...] = (),
    clients: tuple[str, ...] = (),
    floor: str = "",
) -> MonitoringService:
    files, given = files or {}, credentials or {}
    kind = PACKAGED_PROGRAMS[name]
    # packaged services are started alike
    command = [kind.program, *words, f"--web.listen-address={format_endpoint(*at)}"] if kind.package else words
    text = render(
        "monitoring/service.j2",
        owned=OWNED,
        roots=roots,
        unit=unit_name(name),
        path=f"{UNIT_FOLDER}/{unit_name(name)}",
        about=about,
        user=all_service_users(accounts.prefix)[name],
        command=" ".join(command),
        port=at[1],
        allow=tuple(dict.fromkeys(allow)),
        credentials=given,
        started_from=STARTED_FROM_FOLDER,
        settings=[*files, *given.values()],
        data=data_folder(roots, name) if name in STATEFUL_PROGRAMS else "",
        memory=MEMORY.get(name, MEMORY_OF_OTHERS),
        open_files=FILES.get(name, FILES_OF_OTHERS),
        whole_proc=name in ("node", "gpu"),
        cards=name == "gpu",
    )
    return MonitoringService(name, text, files, tuple(given.values()), at, clients, floor or kind.floor)
