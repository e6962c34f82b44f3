"""One instance, served by two processes in turn: its unit's, and the same command line outside of any sandbox, or the
unit of another instance of its host in place of that.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paramiko import SSHException

from bench.load_statistics import BARE, OTHER, PORT, UNIT
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import KEY_FILE, ServiceSpec
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.host.systemd import STARTED_FROM_FOLDER, UnitState
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED, Instance
from rigwright.model.rig import Rig
from rigwright.serving.instance_units import LOOPBACK, OWNED_HEADER, RUN, build_listener, build_unit, credential_path
from roles.deploy_lock import SILENCE, DeployLock
from roles.root_shell import RootCommandFailed, RootShell

BARE_UNIT, LOAD_UNIT, GUARD_UNIT = "rw-bench-bare", "rw-bench-load", "rw-bench-guard"
BARE_SOCKET = f"{RUN}/{BARE_UNIT}/api.sock"


class MeasurementFailed(Exception):
    """The instance cannot be measured as it is, or another process is at work on its host."""


@dataclass(frozen=True)
class Deployed:
    """An instance as its rig declares it, and as its host is to serve it."""

    rig: Rig
    instance: Instance
    installation: Installation
    """Its engine's, or the environment that it runs in."""

    @property
    def unit_states(self) -> tuple[UnitState, UnitState]:
        """The target state of its process, and of its port's."""
        return build_unit(self.rig, self.instance, self.installation).unit_state, build_listener(
            self.rig.roots, self.rig.accounts, self.rig.gateway, self.instance, OWNED_HEADER
        ).unit_state

    @property
    def environment_file(self) -> str:
        """The unit's."""
        return f"{self.rig.roots.config}/current/env/{self.instance.name}"

    @property
    def key_file(self) -> str:
        """Where the key lies, for root alone."""
        return credential_path(self.rig.roots, self.instance)

    @property
    def places(self) -> dict[str, str]:
        """Way of serving -> where clients find it: a socket's path, or address and port."""
        return {BARE: BARE_SOCKET, UNIT: self.instance.socket, PORT: f"{LOOPBACK}:{self.instance.port}"}

    @property
    def program(self) -> str:
        """The program of its unit."""
        return str(self._service.command[0])

    @property
    def bare(self) -> list[str]:
        """The unit's command line for another socket, and with the key where it lies.

        Raises:
            MeasurementFailed: it does not name the unit's socket, so the process would take it, or it starts a
                container, which belongs into the unit's own control group.
        """
        if self._service.container:
            raise self._no_bare("it runs in a container")
        command, own = self._service.command, self.instance.socket
        # a word of its own, or an option's value
        moved = {
            word: word.removesuffix(own) + BARE_SOCKET for word in command if word == own or word.endswith(f"={own}")
        }
        if not moved:
            raise self._no_bare(f"its command line does not name its socket {own}")
        return [self.key_file if word is KEY_FILE else moved.get(word, str(word)) for word in command]

    def refuse_without_bare(self) -> None:
        """Refuse an instance whose process cannot run outside its unit, while it still serves.

        Raises:
            MeasurementFailed: as of `bare`.
        """
        _ = self.bare

    def _no_bare(self, why: str) -> MeasurementFailed:
        return MeasurementFailed(
            f"{self.instance.name} cannot run outside its unit: {why}; compare it with another instance by --beside"
        )

    @property
    def health(self) -> str:
        """The path that says whether it is up."""
        return self._service.health

    @property
    def completions(self) -> str:
        """The path at which it is asked for tokens."""
        return self._service.completions

    @property
    def cache(self) -> str:
        """Where it keeps what it compiles; empty where it compiles nothing."""
        return self._service.cache

    @property
    def _service(self) -> ServiceSpec:
        return kind_of(self.instance).service(self.rig, self.instance, self.installation)


def start_bare(found: Deployed) -> str:
    """The shell command that starts it: as root, with nothing of what the unit forbids."""
    options = ("--quiet", "--collect", f"--unit={BARE_UNIT}", "--service-type=exec")
    properties = [
        f"--property=EnvironmentFile={found.environment_file}",
        f"--property=RuntimeDirectory={BARE_UNIT}",
        "--property=RuntimeDirectoryMode=0700",
        # root could write into the environment; a unit cannot
        "--setenv=PYTHONDONTWRITEBYTECODE=1",
    ]
    if found.cache:
        # its environment leads to where the unit has it: without that it would begin with nothing compiled
        properties.append(f"--property=BindPaths={found.cache}:{COMPILED}")
        # the instance must be able to replace what root has compiled there; the folder above it is root's
        owner = found.rig.accounts.of_instance(found.instance)
        restore_owner = shlex.join(("/bin/chown", "-Rh", f"{owner}:{owner}", found.cache))
        properties.append(f"--property=ExecStopPost={restore_owner}")
    # systemd expands variables in what it is given, in a program's name none
    program, *words = found.bare
    return shlex.join(
        ("systemd-run", *options, *properties, "--", program, *(word.replace("$", "$$") for word in words))
    )


@dataclass(frozen=True)
class Contest:
    """An instance of a host whose deploy lock is held, between the two processes that serve it."""

    remote: RootShell
    deploy_lock: DeployLock
    unit: Deployed
    other: Deployed | None = None
    """The service that takes the place of the bare process."""

    @property
    def against(self) -> str:
        """The process that the unit's takes turns with."""
        return OTHER if self.other else BARE

    @property
    def units(self) -> list[str]:
        """Units that serve when all is over."""
        return [one.instance.unit for one in (self.unit, self.other) if one]

    def asks(self, way: str) -> dict[str, str]:
        """Where a way of serving is asked, and by what: members of `LoadRequest`."""
        one = self.other if way == OTHER and self.other else self.unit
        at = one.instance.socket if way == OTHER else one.places[way]
        return {"at": at, "key_file": one.key_file, "path": one.completions}

    def serve(self, process: str, *, alone: bool = True) -> float:
        """Serve it by a new process: that of its UNIT, or of `against`. Returns after how many seconds it was ready;
        the bare one is by its health alone, and by no answer.

        Args:
            process: Which one.
            alone: Whether what serves already is stopped before.

        Raises:
            MeasurementFailed: it does not come up, or the deploy lock is lost.
        """
        if self.deploy_lock.lost:
            raise MeasurementFailed(f"lost the deploy lock: {self.deploy_lock.lost}")
        if alone:
            self.stop(*self.units, BARE_UNIT)
        began = time.monotonic()
        if process == BARE:
            self._start_bare()
        else:
            self.start_unit(self.other if process == OTHER and self.other else self.unit)
        return time.monotonic() - began

    def _start_bare(self) -> None:
        self._run(start_bare(self.unit))
        limit = self.unit.instance.variant.ready_timeout
        ask = "curl --silent --fail --output /dev/null --max-time 5"
        ready = (
            f"until {ask} --unix-socket {BARE_SOCKET} http://localhost{self.unit.health}; do "
            f"systemctl --quiet is-active {BARE_UNIT} || exit 1; sleep 0.2; done"
        )
        self._run(f"timeout {limit} sh -c {shlex.quote(ready)} || {{ {_last_words(BARE_UNIT)}; exit 1; }}")

    def stop(self, *units: str) -> None:
        """Stop units; one that is not there is stopped."""
        self._run("".join(f"systemctl stop {unit} 2>/dev/null; " for unit in units) + "true")

    def start_unit(self, one: Deployed) -> None:
        """Start an instance's unit, which takes until it has answered.

        Raises:
            MeasurementFailed: it does not.
        """
        unit = one.instance.unit
        # starts by hand count for StartLimitBurst= too
        self._run(
            f"systemctl reset-failed {unit} 2>/dev/null; systemctl start {unit} || {{ {_last_words(unit)}; exit 1; }}"
        )

    def load(self, arguments: str, program: str) -> str:
        """Run the load program on the host; returns what it printed.

        Raises:
            MeasurementFailed: it failed.
        """
        # a unit, for it would go on when the connection does not
        options = f"--quiet --collect --pipe --wait --service-type=exec --unit={LOAD_UNIT}"
        return self._run(f"systemd-run {options} python3 -I - {shlex.quote(arguments)}", program)

    def run_instead(self, command: str, stdin: str) -> str:
        """Run a command in place of the processes that serve; returns what it printed.

        Raises:
            MeasurementFailed: it failed, or the deploy lock is lost.
        """
        if self.deploy_lock.lost:
            raise MeasurementFailed(f"lost the deploy lock: {self.deploy_lock.lost}")
        return self._run(command, stdin)

    def _run(self, script: str, stdin: str = "") -> str:
        try:
            return self.remote.run(script, stdin)
        except (RootCommandFailed, OSError, SSHException) as error:
            raise MeasurementFailed(str(error)) from None


def _last_words(unit: str) -> str:
    return f"journalctl --no-pager --output=cat --lines=15 --unit={unit} >&2"


def guard(*units: str) -> str:
    """The shell command that has the host itself serve units again as soon as the deploy lock is free."""
    stop = "".join(f"systemctl stop {load}; " for load in (LOAD_UNIT, BARE_UNIT))
    all_of_them = shlex.join(units)
    start = f"systemctl reset-failed {all_of_them}; systemctl start {all_of_them}"
    words = ("flock", "--shared", DEPLOY_LOCK, "sh", "-c", stop + start)
    return shlex.join(("systemd-run", "--quiet", "--collect", f"--unit={GUARD_UNIT}", *words))


@contextmanager
def contest(
    target: object, made: Deployed, doing: str, say: Callable[[str], None], other: Deployed | None = None
) -> Iterator[Contest]:
    """Hold the host's deploy lock while the block runs; whatever becomes of it, units of instances serve after it.

    Args:
        target: pyinfra's connected host.
        made: An instance that runs as it is declared.
        doing: The message for other processes that want the deploy lock.
        say: Told what is under way.
        other: Another one that runs, to take the place of the bare process.

    Raises:
        MeasurementFailed: one does not run, it is another one's turn at this host, or a unit does not come up again.
    """
    remote = RootShell(target)
    deploy_lock = DeployLock(target, doing)
    if refused := deploy_lock.acquire():
        raise MeasurementFailed(f"refused: {refused}")
    try:
        for unit_state in (*made.unit_states, *(other.unit_states if other else ())):
            _runs(remote, unit_state)
        found = Contest(remote, deploy_lock, made, other)
        remote.run(guard(*found.units))
        try:
            yield found
        finally:
            say(f"starting {' and '.join(found.units)} again")
            _restore(found)
    except (RootCommandFailed, OSError, SSHException) as error:
        raise MeasurementFailed(str(error)) from None
    finally:
        if deploy_lock.channel:
            deploy_lock.channel.close()


def _runs(remote: RootShell, unit_state: UnitState) -> None:
    try:
        remote.run(f"systemctl --quiet is-active {shlex.quote(unit_state.unit)}")
        started_from = remote.run(f"head -n 1 {shlex.quote(f'{STARTED_FROM_FOLDER}/{unit_state.unit}')}").strip()
    except RootCommandFailed:
        raise MeasurementFailed(f"{unit_state.unit} does not run: start or deploy it first") from None
    if started_from != unit_state.started_from:
        raise MeasurementFailed(f"{unit_state.unit} was not started from what the inventory declares: deploy it first")


def _restore(made: Contest) -> None:
    try:
        made.stop(LOAD_UNIT, BARE_UNIT)
        for one in (made.unit, made.other):
            if one:
                made.start_unit(one)
        made.stop(GUARD_UNIT)
    except MeasurementFailed as error:
        raise MeasurementFailed(
            f"{error}\nnot back: {', '.join(made.units)}; the host starts what is missing by itself within "
            f"{SILENCE} s: look with `rigwright status`"
        ) from None
