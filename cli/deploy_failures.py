"""The result of each host of a deploy, and the error that names the hosts on which it failed."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import click
from click.core import ParameterSource

from cli.deploy_agreement import describe_remains
from cli.exit_codes import HostUnreached, NotAsDeclared
from cli.prog_name import TYPED_INVENTORY_KEY, prog_name
from rigwright.host_selection import format_hosts, group_lines, is_many
from roles.connection_failures import describe_unreachable_host, strip_address
from roles.root_shell import is_root_denial

RERUN_HINT = "run the same command again"


@dataclass
class HostProgress:
    """The result of one host."""

    unreached: str = ""
    """Why there was no connection."""
    step: str = ""
    """The one that failed."""
    errors: list[str] = field(default_factory=list)
    """The reports about that, as lines."""
    notes: set[str] = field(default_factory=set)
    """Lines about the host that were printed, which no later round prints again."""
    steps: int = 0
    changed: int = 0
    """How many of its steps changed something."""
    repaired: list[str] = field(default_factory=list)
    """The changes that the checks found, and that were repaired, or would be."""
    remains: list[str] = field(default_factory=list)
    """The drift of Rigwright's own state that remains after all."""
    checks_passed: int | None = None
    """Of what a deploy owns; None where they did not run."""
    ended: float = 0.0
    """When its last step did, as time.monotonic has it."""


def raise_failures(
    verb: str,
    hosts: Mapping[str, HostProgress],
    fine: Collection[str],
    serving: Mapping[str, str],
    *,
    touched: bool,
) -> None:
    """Say what failed on which host, what is served there, and what to do.

    Raises:
        NotAsDeclared: on a host that was reached.
        HostUnreached: a host was not, or refuses root.
    """
    bad = {name: one for name, one in sorted(hosts.items()) if name not in fine}
    if not bad:
        return
    alone = len(hosts) == 1
    many = is_many(hosts)
    described = [
        (name, _describe_failure(one, serving.get(name, ""), touched, with_reason=alone or many))
        for name, one in bad.items()
    ]
    lines = [f"{name}: {text}" for name, text in described]
    if many:
        similar = [(name, strip_address(text)) for name, text in described]
        lines = [f"{format_hosts(names)}: {text}" for text, names in group_lines(similar).items()]
    where = f"on {len(bad)} of {len(hosts)} hosts" if len(hosts) > 1 else f"on {next(iter(bad))}"
    # on a host that was never reached, nothing failed
    none_reached = all(one.unreached for one in bad.values())
    text = f"{verb}: hosts not reached: {len(bad)} of {len(hosts)}" if none_reached else f"{verb} failed {where}"
    if len(bad) == 1 and none_reached:
        text = f"{verb}: {lines[0]}"
    elif len(bad) == 1:
        text += f": {lines[0].removeprefix(f'{next(iter(bad))}: ') if alone else lines[0]}"
    else:
        text += "".join(f"\n  {line}" for line in lines)
    if not alone and (command := _render_continuation(bad)):
        text += f"\n  To continue: `{command}`"
    away = any(one.unreached or any(map(is_root_denial, one.errors)) for one in bad.values())
    causes = {name: _describe_cause(one) for name, one in bad.items()}
    raise (HostUnreached if away else NotAsDeclared)(text, causes)


def _render_continuation(hosts: Collection[str]) -> str:
    """The command of this run, limited to hosts; empty outside of a command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    words = [prog_name(), *context.command_path.split()[1:]]
    for one in context.command.params:
        name = one.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in ("limit", "verbose"):
            continue
        value = context.params[name]
        if isinstance(one, click.Option):
            words += [one.opts[0]] if one.is_flag else [one.opts[0], str(value)]
        else:
            words.append(context.meta.get(TYPED_INVENTORY_KEY, value) if name == "inventory" else str(value))
    return shlex.join([*words, "--limit", ",".join(sorted(hosts))])


def _describe_failure(one: HostProgress, serving: str, touched: bool, *, with_reason: bool) -> str:
    serves = f". {serving[:1].upper()}{serving[1:]}" if serving else ""
    if one.unreached:
        # of a few, each was reported with its reason as soon as that was known
        why = describe_unreachable_host(one.unreached if with_reason else "")
        return f"{why}. Nothing was done there. Fix that, then {RERUN_HINT}"
    if one.remains:
        return f"{describe_remains(one.remains)}\n  Fix that, then {RERUN_HINT}"
    refused = [line for line in one.errors if line.startswith("refused: ")]
    if refused and not one.step:
        more = f" (and {len(refused) - 1} more, above)" if refused[1:] else ""
        return f"{refused[0]}{more}. Nothing was changed there{serves}. Fix that, then {RERUN_HINT}"
    what = _describe_cause(one)
    goes_on = f"{RERUN_HINT}: it continues from there" if touched else RERUN_HINT
    return f"{what}{serves}. Fix that, then {goes_on}"


def _describe_cause(one: HostProgress) -> str:
    """The cause alone, without advice."""
    if one.unreached:
        return describe_unreachable_host(one.unreached)
    if one.remains:
        return describe_remains(one.remains)
    refused = [line for line in one.errors if line.startswith("refused: ")]
    if refused and not one.step:
        return refused[0]
    reason = one.errors[-1].strip().rstrip(".") if one.errors else "lost the connection"
    return f"{one.step}: {reason}" if one.step else reason
