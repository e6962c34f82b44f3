"""An inventory's hosts and rigs, read without reaching a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from cli.default_inventory import DecoratedCommand, InventoryArgument, default_inventory, describe_missing, is_inventory
from cli.prog_name import TYPED_INVENTORY_KEY, locate_inventory
from rigwright.check_waivers import find_deploy_faults
from rigwright.declaration.host_data import find_undeclared_data
from rigwright.declaration.inventory_errors import (
    describe_foreign_format,
    describe_missing_group,
    describe_python_error,
)
from rigwright.declaration.shared_resolution import share_resolutions
from rigwright.host_inventory import run_inventory
from rigwright.host_selection import find_name_clashes, select_hosts
from rigwright.inventory import RIG_KEYS, load_rig
from rigwright.local_files import read_content
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, describe_unknown, format_value, printable

MAX_INVENTORY_BYTES = 16 << 20  # bytes of an inventory


class InventoryPath(click.ParamType[str]):
    """Path of an inventory: a readable file of a plausible size."""

    name = "file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse any other path, with the nearest name in its folder."""
        typed, value = value, locate_inventory(value)
        try:
            read_content(value, MAX_INVENTORY_BYTES)
        except ValueError as error:
            hint = "" if is_inventory(value) or default_inventory() else f". {describe_missing()}"
            self.fail(f"{printable(value)} {error}{hint}", param, ctx)
        if ctx:
            ctx.meta[TYPED_INVENTORY_KEY] = typed
        return value

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Why no default inventory is used."""
        return describe_missing()

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Have the shell complete names of files; with a default inventory, also the argument after INVENTORY."""
        arguments = [one for one in ctx.command.params if isinstance(one, click.Argument)]
        further = arguments[1:2] if default_inventory() else []
        return [
            CompletionItem(incomplete, type="file"),
            *(item for one in further for item in one.shell_complete(ctx, incomplete)),
        ]


class SuggestingChoice(click.Choice[str]):
    """One of some words; a message about another one has the nearest of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word; the message about another one begins with the name of the option or argument."""
        if value not in self.choices:
            # `stages` is the argument of several
            noun = ((param and param.name) or "word").removesuffix("s").replace("_", " ")
            self.fail(describe_unknown(noun, str(value), self.choices), param, ctx)
        return str(value)


INVENTORY_ARGUMENT = click.argument("inventory", cls=InventoryArgument, type=InventoryPath())


def optional_inventory(*options: str) -> Callable[[DecoratedCommand], DecoratedCommand]:
    """INVENTORY of a verb that also runs without one; with these options the verb reads none."""
    return click.argument("inventory", cls=InventoryArgument, type=InventoryPath(), required=False, unused_with=options)


def load_hosts(inventory: str, limit: str | None) -> dict[str, dict[str, Any]]:
    """The hosts of an inventory that a limit names, with their data.

    Raises:
        click.ClickException: a mistake in the inventory, no hosts, or none that the limit names. pyinfra would call
            the last two a success.
    """
    return _run_inventory(inventory, limit, lambda: run_inventory(inventory))


def load_hosts_from_text(inventory: str, content: bytes) -> dict[str, dict[str, Any]]:
    """The hosts that an inventory would have with this content, with their data.

    Raises:
        click.ClickException: as `load_hosts` does.
    """

    def run() -> dict[str, Any]:
        # of its path, for all that lies beside it
        variables: dict[str, Any] = {"__name__": "<run_path>", "__file__": inventory}
        exec(compile(content, inventory, "exec"), variables)  # noqa: S102 (the operator's own program)
        return variables

    return _run_inventory(inventory, None, run)


def _run_inventory(inventory: str, limit: str | None, run: Callable[[], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[str]] = {}
    group_data: dict[str, dict[str, Any]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    if wrong := describe_foreign_format(inventory):
        raise click.ClickException(f"{inventory}: {wrong}")
    try:
        variables = run()
    except SystemExit as error:
        said = error.code if isinstance(error.code, str) else ""
        raise click.ClickException(said or f"{inventory}: defines no hosts") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an inventory is the operator's program: anything can come out of it
        raise click.ClickException(f"{inventory}: {describe_python_error(inventory, error)}") from None
    ignored = ""
    for name, value in variables.items():
        listed = value[0] if isinstance(value, tuple) and value else value
        # of a tuple with data, pyinfra takes any sequence of hosts
        is_group = isinstance(listed, list) or (isinstance(listed, tuple) and listed is not value)
        if not is_group or name.startswith("_"):
            continue
        if odd := [item for item in listed if not isinstance(item, (str, tuple))]:
            ignored = f"; {name} is not a group, because it contains {format_value(odd[0])}: {name} = hosts({{...}})"
            continue  # to pyinfra it is a list like any other
        members = [_parse_member(f"{inventory}: {name}", item) for item in listed]
        groups[name] = [host for host, _ in members]
        group_data[name] = _parse_group_data(f"{inventory}: {name}", value)
        for host, data in members:
            # a group may name hosts of another one
            hosts[host] = {**hosts.get(host, {}), **data}
    if not hosts:
        raise click.ClickException(f"{inventory}: no hosts{ignored or describe_missing_group(variables)}")
    if clashes := find_name_clashes(hosts, groups):
        raise click.ClickException("\n".join(f"{inventory}: {one}" for one in clashes))
    where = {host: (name, hosts[host]) for name, members in groups.items() for host in members}
    if problems := find_undeclared_data(inventory, group_data, where, RIG_KEYS):
        raise click.ClickException(str(Invalid(problems)))
    try:
        wanted = select_hosts(limit, [*hosts], {Path(inventory).stem: [*hosts], **groups})
    except LookupError as error:
        raise click.UsageError(f"--limit: {error.args[0]}") from None
    return {host: hosts[host] for host in wanted}


def _parse_group_data(place: str, value: object) -> dict[str, Any]:
    """The data of a group: the second item of a tuple."""
    if not isinstance(value, tuple):
        return {}
    if len(value) != 2 or not isinstance(value[1], dict):
        raise click.ClickException(f"{place}: {format_value(value[1:])} is refused: a group is (hosts, its data)")
    return value[1]


def _parse_member(place: str, item: str | tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    """A host of a group and its data."""
    host, data = item if isinstance(item, tuple) and len(item) == 2 else (item, {})
    if not (isinstance(host, str) and host and isinstance(data, dict)):
        raise click.ClickException(
            f"{place}: {format_value(item)} is refused: must be a host's name, or (name, its data)"
        )
    return host, data


def load_host_rig(name: str, data: object) -> Rig:
    """The rig that a host's data describes.

    Raises:
        click.ClickException: it describes none.
    """
    try:
        return load_rig(data)
    except Invalid as error:
        raise click.ClickException(f"{name}: {error}") from None


def load_host_rigs(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Rig]:
    """The rigs that the data of hosts describes, by name.

    Raises:
        click.ClickException: one describes none.
    """
    with share_resolutions():
        return {name: load_host_rig(name, data.get("rig")) for name, data in hosts.items()}


def require_deployable(rig: Rig) -> Rig:
    """A rig that a deploy accepts: its bundle, if it has one, is whole, and no waiver of it has ended.

    Raises:
        click.ClickException: a deploy is refused; the text has every reason.
    """
    if faults := find_deploy_faults(rig):
        raise click.ClickException("\n".join(map(str, faults)))
    return rig
