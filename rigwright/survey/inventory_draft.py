"""The commented inventory that is written for a box that was looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from rigwright.declaration.connection import parse_host_key
from rigwright.model.catalog_schema import Catalog
from rigwright.safe_text import wrap_words
from rigwright.survey.box_survey import CONTAINER, BoxSurvey, GpuProcess, ObservedCard
from rigwright.survey.suggestions import INSTANCE, OperatorAnswers, card_name, card_names, suggest_entry, suggest_port

WIDTH = 116  # of a comment's text, so that no line is longer than 120
GIB = 1024 * 1024  # in KiB


def render_inventory(survey: BoxSurvey, answers: OperatorAnswers, catalog: Catalog) -> str:
    """An inventory of one rig with what was found in its comments.

    Raises:
        KeyError: the catalogue has no variant of the name that was answered.
    """
    declared = suggest_entry(survey, answers, catalog)
    lines = ['"""One box, as found by `rigwright init`. docs/reference/inventory.md has all keys."""', ""]
    lines += [
        *_render_comment(_describe_system(survey)),
        "",
        "from rigwright.inventory import hosts",
        "",
        "rigs = hosts(",
    ]
    lines += ["    {", f'        "{answers.name}": {{']
    for key, value in answers.connection.items():
        if key == "ssh_host_key":
            lines += _render_comment([f"The only accepted key: {parse_host_key(str(value)).fingerprint}"], 12)
        lines.append(f"            {_render_literal(key)}: {_render_literal(value)},")
    lines += _render_comment(_describe_cards(survey, catalog), 12)
    for key, value in declared.items():
        lines += _render_comment(_describe_reasons(key, survey, answers, catalog), 12) + _render_key(key, value)
    if "instances" not in declared:
        port = answers.port or suggest_port(survey)
        cards = '"cards": [0], ' if survey.cards else ""
        example = f'"instances": {{"{INSTANCE}": {{"variant": "ENGINE/NAME", {cards}"port": {port}}}}},'
        lines += _render_comment(["No instance is declared yet; to serve a variant of the catalogue, add", example], 12)
    lines += ["        },", "    }", ")"]
    if missing := render_missing_cards(survey, catalog):
        lines += ["", *_render_comment(missing)]
    if running := _describe_processes(survey):
        lines += ["", *_render_comment(running)]
    return "\n".join(lines) + "\n"


def _render_key(key: str, value: object) -> list[str]:
    """A key of the entry; instances one a line, as are cards where they are many."""
    line = f"            {_render_literal(key)}: {_render_literal(value)},"
    if isinstance(value, dict) and key == "instances":
        inner = [f"{_render_literal(name)}: {_render_literal(instance)}," for name, instance in value.items()]
        return [f'            "{key}": {{', *(f"{' ' * 16}{one}" for one in inner), "            },"]
    if isinstance(value, list) and len(line) > 120:
        return [f'            "{key}": [', *(f"{' ' * 16}{_render_literal(one)}," for one in value), "            ],"]
    return [line]


def _render_literal(value: object) -> str:
    """A Python literal with double quotes, as the rest of the project writes it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_render_literal(key)}: {_render_literal(inner)}" for key, inner in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_render_literal(inner) for inner in value) + "]"
    return repr(value)


def flatten_text(text: str) -> str:
    """Text of the box that can stand in a comment or on a terminal: one line, without control characters."""
    return "".join(character for character in text if character.isprintable())


def _render_comment(texts: Iterable[str], indent: int = 0) -> list[str]:
    lines = []
    for text in texts:
        margin = re.match(r" *", text)
        hang = " " * (len(margin[0]) + 4 if margin else 4)
        wrapped = wrap_words(flatten_text(text), WIDTH - indent, others=hang)
        lines += [f"{' ' * indent}# {line}".rstrip() for line in wrapped or [""]]
    return lines


def _describe_system(survey: BoxSurvey) -> list[str]:
    nodes = f" in {survey.numa_nodes} NUMA nodes" if survey.numa_nodes > 1 else ""
    found = [
        f"{survey.os_id} {survey.os_version} on {survey.hostname}, kernel {survey.kernel}, {survey.cpus} CPUs{nodes}, "
        f"{survey.memory_kib / GIB:.1f} GiB of memory"
    ]
    if survey.cards:
        found.append(f"NVIDIA driver: {survey.driver or 'none is loaded'}")
    if survey.smi_failure:
        found.append(f"nvidia-smi does not work there: {survey.smi_failure}")
    if survey.disks:
        found.append("File systems:")
    for disk in survey.disks:
        mode = "" if disk.writable else ", read-only"
        room = f"{disk.free_kib / GIB:.1f} of {disk.size_kib / GIB:.1f} GiB free"
        found.append(f"  {disk.mount}  {disk.type}, {room}{mode}")
    if survey.record is not None:
        found.append(f"It was deployed before, as rig {survey.record or '(unreadable record)'}.")
    if survey.uid:
        found.append("Inspected without root: processes and listeners of other users have no names here.")
    return found


def describe_card(number: int, card: ObservedCard) -> str:
    """One card in words. The link's speed is the card's: an idle card's own is low."""
    parts = [card.pci_id]
    parts += [card.name] if card.name else []
    parts += [f"{card.vram_mib} MiB"] if card.vram_mib else []
    parts += [f"NUMA node {card.numa_node}"] if card.numa_node is not None else []
    if card.lanes and card.lanes_max:
        less = ", fewer than the card supports" if card.lanes < card.lanes_max else ""
        parts.append(f"link x{card.lanes} of x{card.lanes_max}{less}")
    speed = card.speed_max.removesuffix(" PCIe")
    parts += [f"up to {speed}"] if speed and speed != "Unknown" else []
    if card.nvlinks:
        peers = f" to card {', '.join(map(str, card.nvlink_peers))}" if card.nvlink_peers else ""
        parts.append(f"{card.nvlinks} NVLink links up{peers}")
    return f"{number}  {card.address}  {', '.join(parts)}"


def _describe_cards(survey: BoxSurvey, catalog: Catalog) -> list[str]:
    if not survey.cards:
        return ["No NVIDIA card is on the PCI bus."]
    found = ["In the order of the PCI bus; instances name cards by these numbers:"]
    for number, card in enumerate(survey.cards):
        others = sorted(name for name, known in catalog.cards.items() if card.pci_id in known.pci_ids)
        name = card_name(card, catalog)
        others = [other for other in others if other != name]
        doubt = f"; its memory is unknown without a driver: it may be {', '.join(others)}" if others else ""
        found.append(f"  {describe_card(number, card)}{doubt if name and not card.vram_mib else ''}")
    declared = len(card_names(survey, catalog))
    if declared < len(survey.cards):
        reason = "cannot be declared" if declared == 16 else "cannot be declared yet: the end of this file has the "
        "reason"
        found.append(f"From card {declared} on they {reason}.")
    return found


def _describe_reasons(key: str, survey: BoxSurvey, answers: OperatorAnswers, catalog: Catalog) -> list[str]:
    """Why a key has the value it has."""
    if key == "roots":
        return ["The local disk with the most free space:"]
    if key == "service_user":
        return ["Your login is the default service user name, and services need their own user:"]
    if key == "driver":
        how = "deploys install it, the first one with --reboot; on Debian it must be locked first"
        return [f"No driver is loaded: {how} (docs/guides/driver.md):"]
    if key == "instances":
        variant = catalog.variants[answers.variant or ""]
        requests, tokens = variant.capacity or (0, 0)
        return [f"Requests at once: {requests}; each gets up to {tokens} tokens."] if requests else []
    if key == "gateway":
        return ["Clients on the network, without keys and in the clear; they keep this name over every `switch`:"]
    if key == "reserved_gpus":
        return ["Other processes use these cards now, so no instance gets one; remove those that become free:"]
    return []


def _new_name(card: ObservedCard, taken: set[str]) -> str:
    vendorless = re.sub(r"(?i)^nvidia |\bgeforce ", "", card.name)
    name = re.sub(r"[^a-z0-9]+", "-", vendorless.lower()).strip("-")[:60] or "card"
    return f"{name}-{card.pci_id[5:]}" if name in taken or name == "card" else name


def render_missing_cards(survey: BoxSurvey, catalog: Catalog) -> list[str]:
    """The additions for cards that the catalogue lacks, as a file next to the inventory; empty when it has all."""
    taken = set(catalog.cards)
    found: list[str] = []
    names: dict[str, str] = {}
    for card in survey.cards:
        if card_name(card, catalog) is not None or card.pci_id in names:
            continue
        name = names[card.pci_id] = _new_name(card, taken)
        taken.add(name)
        unknown = "  # look it up: no driver reported it"
        label = flatten_text(card.name).replace("\\", "").replace('"', "")
        found += [
            f"[cards.{name}]",
            f'name = "{label}"' if label else f'name = ""{unknown}',
            f'pci_ids = ["{card.pci_id}"]',
            f'capability = "{card.capability}"' if card.capability else f'capability = ""{unknown}',
            f"vram_mib = {card.vram_mib}" if card.vram_mib else f"vram_mib = 0{unknown}",
        ]
    if not found:
        return []
    every = ", ".join(f'"{card_name(card, catalog) or names[card.pci_id]}"' for card in survey.cards)
    before = "The catalogue lacks a card of this box. Add to catalog/cards.toml next to this file:"
    return [before, *(f"  {line}" for line in found), "and then declare", f'  "cards": [{every}],']


def describe_process(process: GpuProcess) -> str:
    """One process on the cards in words."""
    parts = [f"process {process.pid} {process.name or 'unknown'} of {process.user or 'unknown'}"]
    parts += [f"container {process.container}"] if process.container else [process.unit] if process.unit else []
    held = ", ".join(f"{f'{mib} MiB of ' if mib else ''}card {number}" for number, mib in process.memory_mib)
    return ", ".join(parts) + (f": {held}" if held else ": has device files of the cards open")


def _describe_processes(survey: BoxSurvey) -> list[str]:
    found = []
    if foreign := [one for one in survey.processes if one.is_foreign]:
        found += ["Other processes on the cards, which instances must not disturb:"]
        found += [f"  {describe_process(one)}" for one in foreign]
    if survey.units:
        found += ["Units that look like model servers; stop and disable them before an instance takes their cards:"]
        found += [f"  {unit.name} ({unit.state}), from {unit.path}" for unit in survey.units]
    if survey.listeners:
        found.append("TCP ports in use:")
    for one in survey.listeners:
        unit = CONTAINER.sub(lambda found: found[0][:12], one.unit)
        by = " ".join([one.process, f"({unit})" if unit else ""]).strip()
        found.append(f"  {one.port}  {by or 'unknown'}")
    return found
