"""The table of `rigwright status`, and the lines under it."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from dataclasses import dataclass, field

from checks.results import STATUS
from cli.observed_box import describe_state
from cli.prog_name import prog_name
from cli.tables import WIDTH, format_duration, format_size, print_table
from rigwright.operate.instance_health import CardUse, InstanceHealth
from rigwright.problems import format_count, printable


@dataclass(frozen=True)
class InstanceStatus(InstanceHealth):
    """One instance: its health, and what the host and the inventory have of it."""

    variant: str = ""
    """That the host serves."""
    declared: str = ""
    """The inventory's variant; empty where that has no such instance."""
    current: bool = False
    """Whether its process was started from what the inventory declares."""
    port: int | None = None
    cards: list[int] = field(default_factory=list)
    slots: int | None = None
    context_per_sequence: int | None = None
    kv_tokens: int | None = None
    """Tokens that its KV cache has room for, as its engine reported at its start."""
    backend: str = ""
    """The backend that computes attention, likewise."""
    load_seconds: float | None = None


@dataclass(frozen=True)
class HostStatus:
    """One host."""

    host: str
    reached: bool
    why: str = ""
    """Why it could not be looked at; empty where it was."""
    generation: int | None = None
    declared: bool = False
    """Whether that generation is the inventory's."""
    activation_cut_off: bool = False
    activation_failed: bool = False
    """Whether its generation has never served with all that it declares."""
    at_work: str = ""
    """The holder of the deploy lock, its start and its work."""
    instances: list[InstanceStatus] = field(default_factory=list)
    gateway: str = ""
    """How the gateway is doing and where it listens; empty without one."""
    gateway_down: bool = False
    """Whether one of its processes does not run."""
    gpus: tuple[CardUse, ...] = ()
    gpus_say: str = ""
    """The problems of cards, as nvidia-smi reports them."""
    jobs: tuple[str, ...] = ()
    """Long work that is under way."""
    pull: str = ""
    """Its last pull, in words; empty for a host that does not pull."""
    reboot: bool = False
    """Whether one is pending."""
    took_s: float = 0.0
    """Seconds of the look."""

    @property
    def exit_status(self) -> int:
        """The exit status that it comes to."""
        if not self.reached:
            return STATUS["not reached"]
        ready = all(one.assessed.is_ready for one in self.instances)
        is_whole = not (self.activation_cut_off or self.activation_failed)
        well = self.declared and ready and is_whole and not self.gpus_say
        return STATUS["as declared" if well else "not as declared"]


# Columns in their order, and which of them go first where there is no room for all.
COLUMNS = (
    *(
        "host",
        "instance",
        "variant",
        "state",
        "declared",
        "up",
        "port",
        "GPUs",
        "context",
        "GPU memory",
        "temp",
        "power",
        "KV",
    ),
    *("tokens/s", "queue", "restarts", "memory"),
)
OPTIONAL_COLUMNS = (
    *(
        "context",
        "restarts",
        "memory",
        "queue",
        "declared",
        "variant",
        "power",
        "temp",
        "port",
        "GPUs",
        "GPU memory",
        "KV",
    ),
    *("tokens/s", "up"),
)


def fit_columns(rows: list[dict[str, str]], width: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns that have something in them and fit side by side, and the rows of those."""
    columns = [name for name in COLUMNS if any(row.get(name) for row in rows)]

    def wide() -> int:
        sizes = (max(len(name), *(len(row.get(name, "")) for row in rows)) for name in columns)
        return sum(sizes) + 2 * (len(columns) - 1)

    for name in OPTIONAL_COLUMNS:
        if rows and wide() > width and name in columns:
            columns.remove(name)
    return tuple(columns), [tuple(row.get(name, "") for name in columns) for row in rows]


def _status_cells(host: HostStatus, one: InstanceStatus) -> dict[str, str]:
    mine = [card for card in host.gpus if card.index in one.cards]
    used, total = sum(card.used_mib or 0 for card in mine), sum(card.total_mib or 0 for card in mine)
    degrees = max((card.temperature_c for card in mine if card.temperature_c is not None), default=None)
    watts = [card.power_w for card in mine if card.power_w is not None]
    return {
        "host": host.host,
        "instance": one.instance,
        "variant": one.variant,
        "state": one.state,
        "declared": _describe_conformity(one),
        "up": format_duration(one.since_s) if _has_process(one) else "",
        "port": str(one.port or ""),
        "GPUs": ",".join(map(str, one.cards)),
        "context": f"{one.slots} x {one.context_per_sequence}" if one.slots else "",
        "GPU memory": f"{used / 1024:.1f}/{total / 1024:.1f} GiB" if total else "",
        "temp": f"{degrees:.0f} C" if degrees is not None else "",
        "power": f"{sum(watts):.0f} W" if watts else "",
        "KV": f"{one.metrics.kv_used:.0%}" if one.metrics.kv_used is not None else "",
        "tokens/s": f"{one.tokens_a_second:.1f}" if one.tokens_a_second is not None else "",
        "queue": f"{one.metrics.waiting:.0f}" if one.metrics.waiting else "",
        "restarts": str(one.restarts or ""),
        "memory": format_size(one.memory_bytes) if one.memory_bytes else "",
    }


def _has_process(one: InstanceStatus) -> bool:
    """Whether a process runs, and may answer."""
    return one.state == "other generation" or (one.assessed.is_ready and not (one.on_demand and one.state == "asleep"))


def _describe_conformity(one: InstanceStatus) -> str:
    """Whether a running process is the declared one."""
    if one.assessed.is_down:
        return ""
    return "yes" if one.current and one.declared in ("", one.variant) else "no"


def print_status_table(seen: list[HostStatus]) -> None:
    """Print a row for each instance, no wider than the terminal."""
    cells = [_status_cells(host, one) for host in seen for one in host.instances]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    if cells:
        print_table(*fit_columns(cells, width))


def describe_hosts(seen: list[HostStatus], inventory: str, *, verbose: bool = False) -> list[str]:
    """The lines under the table, each with its host."""
    return [f"{host.host}: {printable(line)}" for host in seen for line in _describe_host(host, inventory, verbose)]


def _describe_startup(one: InstanceStatus) -> str:
    """Its engine's reports at its start; empty if nothing."""
    whole = one.context_per_sequence
    times = f", {one.kv_tokens / whole:.1f} requests of {whole}" if one.kv_tokens and whole else ""
    said = [
        f"room for {one.kv_tokens} tokens{times}" if one.kv_tokens else "",
        f"attention by {one.backend}" if one.backend else "",
        f"loaded in {one.load_seconds:.0f} s" if one.load_seconds is not None else "",
    ]
    return "; ".join(filter(None, said))


def _describe_residency(one: InstanceStatus) -> str:
    """The facts of an instance on demand in addition to its state; empty for other instances."""
    ledger = one.on_demand
    if ledger is None:
        return ""
    asleep = "asleep; " if one.state == "asleep" else ""
    parts = [
        f"its last load took {math.ceil(ledger.load_s)} s" if one.state == "starting" and ledger.load_s else "",
        "requests start it again, with pauses of 5 s to 5 minutes" if one.state == "failed" else "",
        "it stops when its last request has ended" if ledger.phase == "leaving" else "",
        f"{asleep}{format_count(ledger.waiting, 'client')} wait{'s' * (ledger.waiting == 1)} for it"
        if ledger.waiting
        else "",
    ]
    return "; ".join(filter(None, parts))


def _describe_sleeping(host: HostStatus) -> str:
    """The sleeping instances of a host, with the seconds of their loads; empty without any."""
    sleeping = [
        (one.instance, one.on_demand.load_s)
        for one in host.instances
        if one.on_demand and one.state == "asleep" and not one.on_demand.waiting
    ]
    names = [f"{name} ({math.ceil(seconds)} s)" if seconds else name for name, seconds in sleeping]
    return f"asleep until a request loads them: {', '.join(names)}" if names else ""


def _describe_host(host: HostStatus, inventory: str, verbose: bool) -> list[str]:
    """The facts that no column has."""
    if not host.reached:
        return [host.why]
    found = [] if host.instances else ["serves nothing"]
    if host.generation is not None and not host.declared:
        found.append(f"the inventory differs: `{prog_name()} plan {shlex.quote(inventory)}` lists the changes")
    elif host.generation is not None:
        found.append(f"generation {host.generation}, as declared")
    if host.activation_cut_off:
        found.append("an activation was cut off: deploy again")
    elif host.activation_failed:
        found.append(f"the activation of generation {host.generation} has failed: deploy again")
    for one in host.instances:
        if one.declared not in ("", one.variant):
            found.append(f"{one.instance} serves {one.variant} until the next deploy: the inventory has {one.declared}")
        if not one.assessed.is_ready:
            found.append(describe_state(one.assessed, inventory, host.host))
        found += [f"{one.instance}: {facts}"] if (facts := _describe_residency(one)) else []
        found += [f"{one.instance}: {error}" for error in one.errors]
        found += [f"{one.instance}: {said}"] if verbose and (said := _describe_startup(one)) else []
    found += [sleeping] if (sleeping := _describe_sleeping(host)) else []
    if host.gateway:
        again = f": `{prog_name()} deploy {shlex.quote(inventory)} --limit {host.host}` starts it"
        found.append(f"gateway {host.gateway}{again * host.gateway_down}")
    if host.gpus_say:
        found.append(host.gpus_say)
    found += [host.pull] if host.pull else []
    found += [f"{job} runs" for job in host.jobs]
    if host.reboot:
        found.append("a reboot is pending")
    return found + ([host.at_work] if host.at_work else [])
