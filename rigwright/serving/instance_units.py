"""Units of an instance as text: service, listener and socket."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.gateway.secrets_distribution import ROUTER
from rigwright.host.systemd import (
    LINKS,
    STARTED_FROM_FOLDER,
    SocketUnit,
    UnitState,
    render_command_line,
    render_environment_file,
)
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.gateway_schema import Gateway
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED, SOCKET_FOLDER, Instance
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.render import render

DIGEST_VARIABLE = "RW_DIGEST"
# Below the configuration's folder: the one with a file for each instance that was stopped by hand. Its unit does not
# start while that is there; a deploy takes it away.
STOPPED = "stopped"
# First line of every unit file we write; a file without it is not ours to remove.
OWNED_HEADER = "# Written by rigwright; changes here are undone by the next deploy."
# Starts, the one that is not made among them, that must fit into StartLimitIntervalSec=, and what each takes beside
# becoming ready, seconds: TimeoutStopSec= and RestartSec=.
STARTS, PAUSE = 6, 35
# Variables that a service may have which its unit does not give: systemd's own, and general ones (systemd.exec(5),
# "Environment Variables Set or Propagated by the Service Manager"; proxies, for there is no network).
INHERITED_VARIABLES = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|PATH|HOME|USER|LOGNAME|SHELL|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID"
    r"|(RUNTIME|CACHE|CREDENTIALS)_DIRECTORY|MEMORY_PRESSURE_(WATCH|WRITE)|(?i:(https?|ftp|all|no)_proxy)"
)
SETTING = re.compile("[A-Z][A-Za-z]*=")
# Of an instance's unit, what is about its own process and its folders, and not about what that may do.
INSTANCE_SETTINGS = re.compile(
    "(Type|User|Group|Exec[A-Za-z]*|EnvironmentFile|LoadCredential|Restart[A-Za-z]*|Timeout[A-Za-z]*|KillMode|Slice"
    "|RuntimeDirectory[A-Za-z]*|CacheDirectory[A-Za-z]*|BindPaths)="
)
ENV = "/usr/bin/env"
# Runtime directories of units are below it, and cache directories.
RUN, CACHE = "/run", "/var/cache"
# How a unit's command of root's begins: outside of the unit's view of /run, and with none of its PATH, in which an
# environment's own programs come first: one of them may be called mount.
ON_HOST = "/usr/bin/nsenter --mount=/proc/1/ns/mnt /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class InstanceUnit:
    """An instance's unit file, environment file, and its test of readiness."""

    instance: str
    name: str
    slice: str
    text: str
    environment: str
    digest: str
    """In the process's environment: another one for other weights, whose hash is in no path."""
    user: str
    cards: frozenset[int]
    ready: str
    """The request that it has to answer, as curl's configuration."""
    ready_again: str
    """The request that later starts on demand have to answer, likewise; empty: the same as `ready`."""
    warm_up: tuple[str, ...]
    """Those that are made once it has, likewise."""
    weights: str
    """Paths of the files that it reads, one a line."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """The programs that start it, in addition to its installation: name -> text."""
    cache: str = ""
    """The folder of what it compiles; none without."""
    marks: tuple[str, ...] = ()
    """Patterns of the lines of its log that are kept of a start."""
    on_demand: bool = False
    """Whether the residency service starts and stops it."""
    privately: tuple[str, ...] = ()
    """The beginning of the command line of a process that has all of its variables."""

    @property
    def unit_state(self) -> UnitState:
        """The target state and holdings of its process."""
        started_from = hashlib.sha256((self.text + self.environment).encode()).hexdigest()
        return UnitState(self.name, started_from, 0, self.cards, on_demand=self.on_demand)


def instance_variables(instance: Instance, service: ServiceSpec) -> dict[str, str]:
    """The instance's environment: which cards the process may see. An empty list hides them all."""
    return {
        # the driver's own default order is by speed, which is not that of GPU indexes
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in instance.cards),
        **service.environment,
        **service.private,
    }


def find_foreign_variables(variables: Iterable[str], instance: Instance, service: ServiceSpec) -> list[str]:
    """Names of variables that an instance's process has from elsewhere, sorted: engines obey those.

    Args:
        variables: All that the process was started with.
        instance: The instance.
        service: How it is run.
    """
    given = {DIGEST_VARIABLE, *instance_variables(instance, service)}
    return sorted(name for name in {*variables} - given if not INHERITED_VARIABLES.fullmatch(name))


def build_unit(rig: Rig, instance: Instance, installation: Installation, node: int | None = None) -> InstanceUnit:
    """The instance's unit, with its digest in its environment.

    Args:
        rig: Its rig.
        instance: The instance.
        installation: Its engine's, or the environment that it runs in.
        node: The NUMA node whose processors and memory it has; None where it has all.
    """
    made = kind_of(instance).service(rig, instance, installation)
    user, privately = rig.accounts.of_instance(instance), _private_variables_prefix(made)
    text = render(
        f"serving/{'container' if made.container else 'instance'}.service.j2",
        owned=OWNED_HEADER,
        container=made.container,
        roots=rig.roots,
        instance=instance,
        service=made,
        slice=instance.slice,
        user=user,
        on_host=ON_HOST,
        stopped=STOPPED,
        links=LINKS if rig.gateway else "",
        out=f"{RUN}/{ROUTER}/out",
        answered=f"{STARTED_FROM_FOLDER}/{instance.unit}.answered",
        # a start may wait as long for what another one compiles
        start_limit=STARTS * (instance.variant.ready_timeout * (2 if made.cache else 1) + PAUSE),
        folder=PurePosixPath(instance.socket).parent.relative_to(RUN),
        cache=PurePosixPath(made.cache).relative_to(CACHE) if made.cache else None,
        command=render_command_line((*privately, *made.command)),
        before=[render_command_line(one) for one in made.container.before] if made.container else [],
        node=node,
        compiled=COMPILED,
        credential=credential_path(rig.roots, instance),
    )
    variables = instance_variables(instance, made)
    weights = "".join(artefact.sha256 for artefact in instance.weights)
    digest = hashlib.sha256(f"{text}{sorted(variables.items())}{weights}".encode()).hexdigest()[:16]
    return InstanceUnit(
        instance=instance.name,
        name=instance.unit,
        slice=instance.slice,
        text=text,
        environment=render_environment_file(
            {name: value for name, value in variables.items() if name not in made.private} | {DIGEST_VARIABLE: digest}
        ),
        digest=digest,
        user=user,
        cards=frozenset(instance.cards),
        ready=made.ready.render_curl_config(instance.socket),
        ready_again=made.ready_again.render_curl_config(instance.socket)
        if instance.is_on_demand and made.ready_again
        else "",
        warm_up=tuple(one.render_curl_config(instance.socket) for one in made.warm_up),
        weights="".join(f"{rig.roots.weight_path(artefact)}\n" for artefact in instance.weights),
        programs=made.programs,
        cache=made.cache,
        marks=kind_of(instance).startup_patterns,
        on_demand=instance.is_on_demand,
        privately=privately,
    )


def _private_variables_prefix(service: ServiceSpec) -> tuple[str, ...]:
    """The prefix of a command line that has variables which no other command of the unit may see."""
    return (ENV, *(f"{name}={value}" for name, value in sorted(service.private.items()))) if service.private else ()


def sandbox_properties(text: str) -> list[str]:
    """The restrictions of an instance's unit, as properties: those of a program that may as little.

    Args:
        text: The unit's.
    """
    lines = [line for line in text.partition("[Service]")[2].partition("\n[")[0].splitlines() if SETTING.match(line)]
    return [line for line in lines if not INSTANCE_SETTINGS.match(line)]


def credential_path(roots: Roots, instance: Instance) -> str:
    """Where an instance's API key lies on the host, readable by root alone."""
    return f"{roots.config}/credentials/{instance.key_name}"


LOOPBACK = "127.0.0.1"
# `localhost` is this first, where the host has it.
LOOPBACK_6 = "[::1]"
LOOPBACKS = (LOOPBACK, LOOPBACK_6.strip("[]"))
PREFIX = "rigwright_listener-"
# Requests under way at once, streams among them, that one port takes; beyond it connections are closed.
CONNECTIONS = 4096


def listener_units(port: int) -> tuple[str, str]:
    """The units of a port: the service that carries bytes, and the socket that holds it. They have the port's name, so
    that it stays held while instances behind it come and go.
    """
    return f"{PREFIX}{port}.service", f"{PREFIX}{port}.socket"


def port_socket(port: int) -> SocketUnit:
    """The socket unit of a port: by IPv4, and by IPv6 where the host has it."""
    return SocketUnit(listener_units(port)[1], frozenset({f"{LOOPBACK}:{port}"}), frozenset({f"{LOOPBACK_6}:{port}"}))


@dataclass(frozen=True)
class PortListener:
    """A port's two units."""

    port: int
    instance: str
    """The unit of the instance that it leads to."""
    socket_text: str
    text: str
    """Of the service that carries bytes."""

    @property
    def unit(self) -> str:
        """The service."""
        return listener_units(self.port)[0]

    @property
    def socket_unit(self) -> str:
        """The unit that holds the port."""
        return listener_units(self.port)[1]

    @property
    def unit_state(self) -> UnitState:
        """The target state and holdings of its process."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return UnitState(self.unit, digest, self.port, frozenset(), (port_socket(self.port),), self.instance)


def build_listener(
    roots: Roots, accounts: ServiceAccounts, gateway: Gateway | None, instance: Instance, owned: str
) -> PortListener:
    """The listener on an instance's declared port.

    Args:
        roots: Directories on the host.
        accounts: System users of the services.
        gateway: The declared gateway.
        instance: The instance.
        owned: First line of unit files of ours.
    """
    unit, socket = listener_units(instance.port)
    values: dict[str, object] = {
        "owned": owned,
        "roots": roots,
        "instance": instance,
        "addresses": (LOOPBACK, LOOPBACK_6),
        "holder": socket,
        "unit": unit,
        "groups": accounts.socket_groups(instance, gateway),
        "connections": CONNECTIONS,
        "sockets": SOCKET_FOLDER,
    }
    return PortListener(
        port=instance.port,
        instance=instance.unit,
        socket_text=render("serving/listener.socket.j2", **values),
        text=render("serving/listener.service.j2", **values),
    )
