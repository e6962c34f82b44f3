"""testinfra over pyinfra's own connection: one inventory, one login, no reconnect a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import State
from pyinfra.context import ctx_state
from pyinfra_cli.exceptions import UnexpectedExternalError
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from rigwright.declaration.host_data import find_inventory_data_problems
from rigwright.declaration.inventory_errors import (
    describe_foreign_format,
    describe_missing_group,
    describe_python_error,
)
from rigwright.host_selection import find_name_clashes, select_hosts
from rigwright.inventory import RIG_KEYS
from rigwright.local_files import refuse_special_file
from rigwright.problems import Invalid
from roles import root_shell
from roles.connection_failures import ConnectFailureRecorder, silence_pyinfra_log
from roles.host_pool import TooManyHosts, pace_hosts, raise_file_limit
from roles.pyinfra_inventory import load_pyinfra_inventory


class UnknownHost(Exception):
    """An inventory without hosts, or a limit that matches none."""


class PyinfraBackend(BaseBackend):
    """Runs testinfra's commands on a connected pyinfra host."""

    NAME = "pyinfra"

    def __init__(self, target: Any) -> None:
        super().__init__(target.name)
        self.target = target

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        """Run a command as root."""
        line = self.get_command(command, *args)
        answer = root_shell.run_command(self.target, line)
        return self.result(answer.status, self.encode(line), answer.out, answer.err)


@contextmanager
def _one_line_errors(inventory: str) -> Iterator[None]:
    """An inventory is the operator's program: its errors are reported in one line."""
    try:
        yield
    except SystemExit as error:
        if isinstance(error.code, str) and error.code:
            raise
        raise UnknownHost(f"{inventory}: defines no hosts") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cause = error.exception if isinstance(error, UnexpectedExternalError) else error
        raise UnknownHost(f"{inventory}: {describe_python_error(inventory, cause)}") from None


def load_selected_hosts(state: State, inventory: str, limit: str | None) -> list[Any]:
    """Load an inventory into a state; returns the hosts that the limit names, or all.

    Raises:
        UnknownHost: no such file, no hosts in it, or none that the limit names (pyinfra itself calls these a success),
            or more than the process may connect to.
        SystemExit: the inventory is refused; its text says why.
    """
    try:
        refuse_special_file(inventory)
    except ValueError as error:
        raise UnknownHost(f"{inventory}: {error}") from None
    if foreign := describe_foreign_format(inventory):
        raise UnknownHost(f"{inventory}: {foreign}")
    with ctx_state.use(state), _one_line_errors(inventory):
        made = load_pyinfra_inventory(inventory)
        state.init(made, Config())
    hosts = list(made)
    if not hosts:
        raise UnknownHost(f"{inventory}: no hosts{describe_missing_group({})}")
    file = Path(inventory).stem
    groups: dict[str, list[str]] = {file: [host.name for host in hosts]}
    for host in hosts:
        for group in host.groups:
            groups.setdefault(group, []).append(host.name)
    if wrong := find_name_clashes(
        [host.name for host in hosts], {name: groups[name] for name in groups if name != file}
    ):
        raise UnknownHost("\n".join(f"{inventory}: {one}" for one in wrong))
    if problems := find_inventory_data_problems(inventory, made, RIG_KEYS):
        raise SystemExit(str(Invalid(problems)))
    try:
        wanted = select_hosts(limit, [host.name for host in hosts], groups)
    except LookupError as error:
        raise UnknownHost(f"{inventory}: --limit: {error.args[0]}") from None
    try:
        raise_file_limit(len(wanted))
    except TooManyHosts as error:
        raise UnknownHost(f"{inventory}: {error}") from None
    return [host for host in hosts if host.name in wanted]


def load_hosts(inventory: str, limit: str | None) -> tuple[State, dict[str, Any]]:
    """An inventory's hosts by name, none of them connected, and pyinfra's state that they are of.

    Raises:
        UnknownHost: as `load_selected_hosts`.
        SystemExit: as `load_selected_hosts`.
    """
    state = State()
    return state, {host.name: host for host in load_selected_hosts(state, inventory, limit)}


def connect_targets(
    state: State, targets: dict[str, Any], connected: Callable[[str], object] = lambda name: None
) -> dict[str, str]:
    """Connect to hosts; returns those out of reach by name, each with the reason.

    Args:
        state: pyinfra's, as `load_hosts` returns it.
        targets: The hosts by name.
        connected: Called with the name of each host as soon as it is connected, and not after an interrupt.
    """
    heard = ConnectFailureRecorder(connected)
    state.add_callback_handler(heard)
    with ctx_state.use(state), silence_pyinfra_log():
        state.limit_hosts = [*targets.values()]
        pace_hosts(state)
        try:
            with suppress(PyinfraError):  # no host is left; the missing ones are named below
                connect_all(state)
        except BaseException:
            state.pool.kill(block=False)  # no work begins on further hosts while running work ends
            raise
    # a host may be left again before others are reached
    return {name: heard.why.get(name, "") for name in sorted({*targets} - heard.reached)}


def testinfra_host(target: Any) -> Host:
    """The testinfra host over a connected pyinfra host."""
    return Host(PyinfraBackend(target))
