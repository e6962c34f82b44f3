"""One instance, served in two ways in turn: by its unit, and by the same command line outside of any sandbox."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from paramiko import SSHException

from bench.figures import BARE
from rigwright.declaration.rig import Instance, Rig
from rigwright.engines.kind import KEY_FILE
from rigwright.host.channel import number
from rigwright.host.locks import LEASE
from rigwright.serving.units import STARTED_FROM, credential_path, service, unit
from roles.lease import SILENCE, Lease
from roles.root import Failed, Root

BARE_UNIT, LOAD_UNIT, GUARD_UNIT = "rw-bench-bare", "rw-bench-load", "rw-bench-guard"
FREE_PORT = "python3 -I -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); print(s.getsockname()[1])'"


class NotMeasured(Exception):
    """The instance cannot be measured as it is, or somebody is at work on its host."""


@dataclass(frozen=True)
class Deployed:
    """An instance as its rig declares it, and as its host is to serve it."""

    rig: Rig
    instance: Instance
    engine_folder: str
    """The name of its engine's installation."""

    @property
    def started_from(self) -> str:
        """What the readiness script has written down of its process."""
        return unit(self.rig, self.instance, self.engine_folder).slot.started_from

    @property
    def environment_file(self) -> str:
        """The unit's."""
        return f"{self.rig.roots.config}/current/env/{self.instance.name}"

    @property
    def key_file(self) -> str:
        """Where the key lies, for root alone."""
        return credential_path(self.rig, self.instance)

    def bare(self, port: int) -> list[str]:
        """The unit's command line for another port, and with the key where it lies."""
        moved = replace(self.instance, port=port)
        words = service(self.rig, moved, self.engine_folder).command
        return [self.key_file if word is KEY_FILE else str(word) for word in words]

    @property
    def health(self) -> str:
        """The path that says whether it is up."""
        return service(self.rig, self.instance, self.engine_folder).health


def start_bare(found: Deployed, port: int) -> str:
    """The shell command that starts it: as root, with nothing of what the unit forbids."""
    options = ("--quiet", "--collect", f"--unit={BARE_UNIT}", "--service-type=exec")
    environment = f"--property=EnvironmentFile={found.environment_file}"
    # systemd expands variables in what it is given, in a program's name none
    program, *words = found.bare(port)
    return shlex.join(
        ("systemd-run", *options, environment, "--", program, *(word.replace("$", "$$") for word in words))
    )


@dataclass(frozen=True)
class Contest:
    """An instance of a host whose lease is held, between its two ways of being served."""

    remote: Root
    lease: Lease
    instance: Instance
    unit: Deployed

    def serve(self, way: str) -> int:
        """Serve it in this way, by a new process and nothing beside it; returns the port.

        Raises:
            NotMeasured: it does not come up, or the lease is lost.
        """
        if self.lease.lost:
            raise NotMeasured(f"the lease is gone: {self.lease.lost}")
        self.stop(self.instance.unit, BARE_UNIT)
        if way != BARE:
            self.start_unit()
            return self.instance.port
        port = number(self._run(FREE_PORT).strip())
        self._run(start_bare(self.unit, port))
        limit = self.instance.variant.ready_timeout
        ready = (
            f"until curl --silent --fail --output /dev/null --max-time 5 http://127.0.0.1:{port}{self.unit.health}; do "
            f"systemctl --quiet is-active {BARE_UNIT} || exit 1; sleep 0.2; done"
        )
        self._run(f"timeout {limit} sh -c {shlex.quote(ready)} || {{ {_last_words(BARE_UNIT)}; exit 1; }}")
        return port

    def stop(self, *units: str) -> None:
        """Stop units; one that is not there is stopped."""
        self._run("".join(f"systemctl stop {unit} 2>/dev/null; " for unit in units) + "true")

    def start_unit(self) -> None:
        """Start the instance's unit, which takes until it has answered.

        Raises:
            NotMeasured: it does not.
        """
        unit = self.instance.unit
        # starts by hand count for StartLimitBurst= too
        self._run(
            f"systemctl reset-failed {unit} 2>/dev/null; systemctl start {unit} || {{ {_last_words(unit)}; exit 1; }}"
        )

    def load(self, arguments: str, program: str) -> str:
        """Run the load program on the host; returns what it printed.

        Raises:
            NotMeasured: it failed.
        """
        # a unit, for it would go on when the connection does not
        options = f"--quiet --collect --pipe --wait --service-type=exec --unit={LOAD_UNIT}"
        return self._run(f"systemd-run {options} python3 -I - {shlex.quote(arguments)}", program)

    def _run(self, script: str, stdin: str = "") -> str:
        try:
            return self.remote.run(script, stdin)
        except (Failed, OSError, SSHException) as error:
            raise NotMeasured(str(error)) from None


def _last_words(unit: str) -> str:
    return f"journalctl --no-pager --output=cat --lines=15 --unit={unit} >&2"


def guard(unit: str) -> str:
    """The shell command that has the host itself serve the unit again as soon as nobody holds the lease any more."""
    stop = "".join(f"systemctl stop {load}; " for load in (LOAD_UNIT, BARE_UNIT))
    one = shlex.quote(unit)
    start = f"systemctl reset-failed {one}; systemctl start {one}"
    words = ("flock", "--shared", LEASE, "sh", "-c", stop + start)
    return shlex.join(("systemd-run", "--quiet", "--collect", f"--unit={GUARD_UNIT}", *words))


@contextmanager
def contest(target: object, made: Deployed, doing: str, say: Callable[[str], None]) -> Iterator[Contest]:
    """Hold the host's lease while the block runs; whatever becomes of it, the instance's unit serves after it.

    Args:
        target: pyinfra's connected host.
        made: An instance that runs as it is declared.
        doing: What others are told who want the lease.
        say: Told what is under way.

    Raises:
        NotMeasured: it does not run, it is another one's turn at this host, or the unit does not come up again.
    """
    remote, name = Root(target), made.instance.unit
    lease = Lease(target, doing)
    if refused := lease.take():
        raise NotMeasured(f"refused: {refused}")
    try:
        try:
            remote.run(f"systemctl --quiet is-active {shlex.quote(name)}")
            started_from = remote.run(f"head -n 1 {shlex.quote(f'{STARTED_FROM}/{name}')}").strip()
        except Failed:
            raise NotMeasured(f"{name} does not run: deploy it first") from None
        if started_from != made.started_from:
            raise NotMeasured(f"{name} was not started from what the inventory declares: deploy it first")
        found = Contest(remote, lease, made.instance, made)
        remote.run(guard(name))
        try:
            yield found
        finally:
            say(f"{name} serves again")
            _restore(found)
    except (Failed, OSError, SSHException) as error:
        raise NotMeasured(str(error)) from None
    finally:
        if lease.channel:
            lease.channel.close()


def _restore(made: Contest) -> None:
    try:
        made.stop(LOAD_UNIT, BARE_UNIT)
        made.start_unit()
        made.stop(GUARD_UNIT)
    except NotMeasured as error:
        raise NotMeasured(
            f"{error}\n{made.instance.unit} is not back; the host starts it by itself within {SILENCE} s: "
            "look with `rigwright status`"
        ) from None
