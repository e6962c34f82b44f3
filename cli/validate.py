"""`rigwright validate`: the declaration of an inventory. Importing what reaches a host would take longer than all of
it."""

from __future__ import annotations

import click

from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rigs, load_hosts, require_deployable
from cli.shell_completion import LIMIT_OPTION
from cli.tables import format_size, print_prose, print_table
from rigwright.declaration.entry_validation import find_exposed_files, list_secret_sources
from rigwright.engines import kind_of
from rigwright.engines.known_issues import describe_warnings, place_instance
from rigwright.engines.memory_fit import GIB, MIB
from rigwright.memory_answers import describe_measured
from rigwright.memory_records import UnreadableRecords
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import EnvSpec, Instance, patches_by_target
from rigwright.model.nvidia_tables import ToolkitSpec


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
def validate(inventory: str, limit: str | None) -> None:
    """Check an inventory, offline.

    Lists every mistake in INVENTORY, its catalogue and its lock, what they declare, and known problems with it.
    Example: rigwright validate rig.py
    """
    rows: list[tuple[str, ...]] = []
    rigs = load_host_rigs(load_hosts(inventory, limit))
    warned: list[str] = []
    for name, rig in rigs.items():
        require_deployable(rig)
        for i in rig.instances:
            cards = ", ".join(f"{index}: {rig.cards[index].name}" for index in i.cards) or "CPU"
            engine = ", ".join(map(str, i.artefacts[:2])) + (" ..." if len(i.artefacts) > 2 else "")
            if i.env:
                engine = next(f"{env.name} {env.version}" for env in rig.envs if env.name == i.env)
            elif kind_of(i).container_engine:
                engine = f"{i.engine_name} {i.artefacts[0].version}"
            rows.append(
                (
                    name,
                    i.name,
                    i.variant_name,
                    engine,
                    cards,
                    str(i.port),
                    i.variant.capacity_text,
                    format_size(sum(one.size for one in i.weights)),
                    _describe_cache(rig.cards, rig.instances, rig.envs, rig.toolkit, i),
                )
            )
        try:
            measured = describe_measured(rig)
        except UnreadableRecords as error:
            raise click.ClickException(str(error)) from None
        known = describe_warnings(rig.cards, rig.instances, rig.envs, rig.toolkit, measured)
        warned += [f"{name}: {said}" for said in known]
        warned += [f"{name}: {what}: {cure}" for what, cure in find_exposed_files([rig]).items()]
        commands = {source: what for source, what in list_secret_sources(rig).items() if not isinstance(source, str)}
        warned += [f"{name}: {what}: {source} exists; a deploy runs it" for source, what in commands.items()]
        if not rig.instances:
            rows.append((name, "none"))
    print_table(("rig", "instance", "variant", "engine", "cards", "port", "context", "weights", "KV cache"), rows)
    for said in warned:
        print_prose(said)
    click.echo("valid")


def _describe_cache(
    declared_cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    envs: tuple[EnvSpec, ...],
    toolkit_spec: ToolkitSpec,
    instance: Instance,
) -> str:
    """Bytes of an instance's KV cache a token, and with its whole context; empty where the lock does not say them."""
    cards = (declared_cards[index] for index in instance.cards)
    memory = kind_of(instance).memory(
        place_instance(
            instance, cards, patches_by_target(instances, envs, toolkit_spec.patches).get(instance.installed_as, ())
        )
    )
    if not memory or not memory.token_bytes:
        return ""
    size = memory.cache_bytes
    whole_context = f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / MIB:.0f} MiB"
    return f"{memory.token_bytes / 1024:.1f} KiB/token" + (f", {whole_context}" if memory.tokens else "")
