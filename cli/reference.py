"""`python -m cli.reference`: writes the tables of keys in docs/ anew, from the models that refuse what is wrong, those
of checks from what they say of themselves, and the schema of their report.

A table stands between `<!-- keys of NAME -->` and `<!-- end of NAME -->`; NAME is one of `TABLES`, or of `OTHERS`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BaseModel, PlainValidator
from pydantic.fields import FieldInfo

from rigwright.declaration.connection import ConnectionEntry
from rigwright.engines import kinds
from rigwright.engines.log_causes import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.gateway.client_setup import CLIENTS, ClientEndpoint
from rigwright.model.catalog_schema import Card, EnvKeys, ModelKeys
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.download_origins import RegistryEntry
from rigwright.model.engine_schema import BlockedVariant, Purpose, VariantEvidence
from rigwright.model.fleet_schema import FleetEntry, VirtualAddressEntry
from rigwright.model.gateway_schema import Gateway, ListenerEntry, ModelEntry
from rigwright.model.instance_schema import InstanceEntry, OnDemandEntry
from rigwright.model.inventory_schema import DriverEntry, RigEntry, ShareEntry
from rigwright.model.monitoring_schema import AlertReceiver, AlertThresholds, Monitoring, MonitoringServer
from rigwright.model.pull_schema import PullEntry
from rigwright.model.roots import Roots
from rigwright.model.secret_sources import SecretCommand
from rigwright.model.signer_schema import SignerEntry
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.operate import kernel_messages
from rigwright.patches.patch import PatchKeys, PatchTarget
from rigwright.plugins.plugin import PluginKeys, PluginMode, SelftestKeys, SelftestLine
from rigwright.project_root import ROOT
from rigwright.supply import apt_release, bundle
from rigwright.supply.lock import Artefact, LockFile
from rigwright.supply.lock_inputs import Input
from rigwright.validated_types import RISING

BLOCK = re.compile(
    r"(?P<begin><!-- keys of (?P<name>[a-z.-]+) -->\n)(?P<table>.*?)(?P<end><!-- end of (?P=name) -->\n)", re.DOTALL
)

BAR = "\\|"
SCHEMA = ROOT / "docs" / "reference" / "check.schema.json"
"""The output of `rigwright check --json`."""


@dataclass(frozen=True)
class KeyTable:
    """The source of a table."""

    of: Any
    """A model, or several of which a key says which one it is: a union with a discriminator."""
    prefix: str = ""
    """The prefix of each key."""
    python: bool = False
    """Whether it is written in Python, not TOML."""


def _list_variant_tables() -> dict[str, KeyTable]:
    """A table for each model of variant keys, named after the first kind with it, also for engines in images."""
    models: dict[object, str] = {}
    for name, kind in kinds().items():
        if not kind.container_engine:
            models.setdefault(kind.variant_keys, name)
    return {f"variant-{name}": KeyTable(model) for model, name in models.items()}


TABLES = {
    "rig": KeyTable(RigEntry, python=True),
    "connection": KeyTable(ConnectionEntry, python=True),
    "instance": KeyTable(InstanceEntry, python=True),
    "driver": KeyTable(DriverEntry, "driver.", python=True),
    "containers": KeyTable(ContainersEntry, "containers.", python=True),
    "roots": KeyTable(Roots, "roots.", python=True),
    "signer": KeyTable(SignerEntry, "signers.NAME.", python=True),
    "on-demand": KeyTable(OnDemandEntry, "on_demand.", python=True),
    "share": KeyTable(ShareEntry, "share.", python=True),
    "pull": KeyTable(PullEntry, "pull.", python=True),
    "waiver": KeyTable(WaiverEntry, "waivers[].", python=True),
    "fleet": KeyTable(FleetEntry, "fleet.", python=True),
    "registry": KeyTable(RegistryEntry, python=True),
    "secret": KeyTable(SecretCommand, python=True),
    "gateway": KeyTable(Gateway, "gateway.", python=True),
    "gateway-listener": KeyTable(ListenerEntry, python=True),
    "gateway-model": KeyTable(ModelEntry, python=True),
    "gateway-virtual-address": KeyTable(VirtualAddressEntry, python=True),
    "monitoring": KeyTable(Monitoring, "monitoring.", python=True),
    "monitoring-server": KeyTable(MonitoringServer, python=True),
    "monitoring-receiver": KeyTable(AlertReceiver, python=True),
    "monitoring-thresholds": KeyTable(AlertThresholds, python=True),
    "input": KeyTable(Input),
    "model": KeyTable(ModelKeys),
    **_list_variant_tables(),
    **{f"engine-{name}": KeyTable(kind.engine_keys) for name, kind in kinds().items()},
    "evidence": KeyTable(VariantEvidence),
    "purpose": KeyTable(Purpose),
    "blocked": KeyTable(BlockedVariant),
    "env": KeyTable(EnvKeys),
    "patch": KeyTable(PatchKeys),
    "plugin": KeyTable(PluginKeys),
    "plugin-mode": KeyTable(PluginMode),
    "plugin-selftest": KeyTable(SelftestKeys, "selftest."),
    "plugin-line": KeyTable(SelftestLine),
    "patch-target": KeyTable(PatchTarget),
    "card": KeyTable(Card),
    "lock": KeyTable(LockFile),
    "artefact": KeyTable(Artefact),
    "bundle": KeyTable(bundle.BundleIndex),
    "bundle-suite": KeyTable(apt_release.ArchiveSuite),
    "bundle-file": KeyTable(bundle.BundleRow),
}


class MissingDescription(Exception):
    """A key has no description."""


def render_pages(folder: Path = ROOT / "docs") -> Iterator[tuple[Path, str]]:
    """Every page with a table, and its text with the tables as they should be.

    Raises:
        KeyError: a page names an unknown table.
        MissingDescription: a key in the model of a table has no description.
    """
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text()
        made = BLOCK.sub(lambda found: f"{found['begin']}\n{render_table(found['name'])}\n{found['end']}", text)
        if BLOCK.search(text):
            yield path, made


def render_table(name: str) -> str:
    """One table, as Markdown.

    Raises:
        KeyError: there is none of that name.
        MissingDescription: a key of its model has no description.
    """
    if name in TABLE_RENDERERS:
        return TABLE_RENDERERS[name]()
    wanted = TABLES[name]
    if len(models := _union_models(wanted.of)) == 1:
        return _render_keys(models[0], wanted)
    return "\n".join(f"**{_model_tag(one)}** {_first_line(one)}\n\n{_render_keys(one, wanted)}" for one in models)


def _render_checks() -> str:
    """All checks, a table a file of them, then the limits of checks in addition to those of the survey."""
    from checks import check_catalogue

    parts: dict[str, list[tuple[str, ...]]] = {}
    listed = check_catalogue.list_checks()
    for one in listed:
        looks = ", ".join(f"`{section.name}`" for section in one.sections)
        parts.setdefault(one.file, []).append((one.id, one.severity, one.title, one.why, looks))
    titles = ("Id", "Severity", "Assertion", "Consequence of a failure", "Survey parts")
    tables = [f"**{file.replace('_', ' ')}**\n\n{_render_markdown_table(titles, rows)}" for file, rows in parts.items()]
    limits = _render_markdown_table(("Id", "It cannot see"), ((one.id, one.blind) for one in listed if one.blind))
    return "\n".join((*tables, f"**Limits of checks, in addition to those of their survey parts**\n\n{limits}"))


def _render_sections() -> str:
    """The parts of the survey."""
    from checks import check_catalogue
    from checks.survey.sections import list_sections

    rows = ((f"`{one.name}`", check_catalogue.describe_section(one), one.blind) for one in list_sections())
    return _render_markdown_table(("Part", "Content", "Limits"), rows)


def _render_symptoms() -> str:
    """Log causes: a table for all engines, then one for each engine kind."""
    parts: dict[str, tuple[Cause, ...]] = {
        "Any engine": COMMON_CAUSES,
        "The kernel and systemd": kernel_messages.CAUSES,
    }
    for name, kind in sorted(kinds().items()):
        # an engine in a container prints the same as outside of one, and the log of another kind's engine is that
        # kind's
        if not kind.container_engine and kind.log_marker:
            parts[name] = tuple(one for one in kind.causes if one not in COMMON_CAUSES)
    titles = ("Log line", "Likely cause and remedy", "Check")
    rows = {
        title: ((f"`{one.pattern}`", _describe_cause(one), one.check) for one in causes)
        for title, causes in parts.items()
    }
    return "\n".join(
        f"**{title}**\n\n{_render_markdown_table(titles, found)}" for title, found in rows.items() if parts[title]
    )


def _describe_cause(cause: Cause) -> str:
    said = re.sub(r"([*_<>])", r"\\\1", cause.means)
    return f"{'harmless: ' if cause.harmless else ''}{said}{', if it is the last line' if cause.last else ''}"


def _render_clients() -> str:
    """The configuration of each client for one model at one gateway."""
    way = ClientEndpoint("box1", "qwen3.6-27b", "http://192.0.2.7:8000/v1", keyed=True, listener="lan")
    parts = (f"**{name}**: {one.where}\n\n```\n{one.made(way)}```\n" for name, one in CLIENTS.items())
    return "\n".join(parts)


def _render_alerts() -> str:
    """The alerts, with every threshold declared."""
    from rigwright.model.monitoring_schema import AlertThresholds
    from rigwright.monitoring.alert_rules import build_alerts

    rows = []
    for one in build_alerts(AlertThresholds(ttft_p99_s=2.0)):
        says = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), one.says)
        says = re.sub(r"\{\{ \$value[^}]*\}\}", "N", says)
        says = re.sub(r"\{\{ if [^}]*\}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}", r"\1, or \2", says)
        rows.append((one.name, one.severity, says, f"{one.minutes} min" if one.minutes else "at once"))
    return _render_markdown_table(("Alert", "Severity", "Text", "After"), rows)


def _render_request_fields() -> str:
    """The rules for request fields."""
    from rigwright.gateway.request_rules import load_request_rules

    rows = []
    for one in load_request_rules():
        places = ", ".join(f"`{place}`" for place in one.location)
        paths = f" (on {', '.join(f'`/v1/{path}`' for path in one.paths)})" if one.paths else ""
        demand = re.sub(r"([*_<>])", r"\\\1", one.demand)
        rows.append((f"`{one.name}`", places + paths, demand, one.reason, ", ".join(one.source)))
    return _render_markdown_table(("Rule", "Fields", "Requirement", "Reason", "Source"), rows)


def _render_root_programs() -> str:
    """Programs that root starts on hosts."""
    from rigwright.supply.root_programs import PROGRAMS, WHERE

    rows = [(", ".join(f"`{name}`" for name in one.names), WHERE[one.origin], one.source, one.note) for one in PROGRAMS]
    return _render_markdown_table(
        ("Programs", "Origin of their bytes", "Package, group or source", "Use by root"), rows
    )


def _render_metrics() -> str:
    """Rigwright's own metrics."""
    from cli.metric_reference import list_metrics

    return _render_markdown_table(("Metric", "Labels", "Meaning"), list_metrics())


def _render_verbs() -> str:
    """Every verb with its options."""
    from cli.verb_reference import render_verbs

    return render_verbs()


TABLE_RENDERERS = {
    "metrics": _render_metrics,
    "verbs": _render_verbs,
    "fields": _render_request_fields,
    "root-programs": _render_root_programs,
    "clients": _render_clients,
    "symptoms": _render_symptoms,
    "checks": _render_checks,
    "survey": _render_sections,
    "alerts": _render_alerts,
}


def _union_models(of: Any) -> list[type[BaseModel]]:
    """The models of a union, in their order; of a model, itself."""
    if isinstance(of, type):
        return [of] if issubclass(of, BaseModel) else []
    return [model for inner in get_args(of) for model in _union_models(inner)]


def _model_tag(model: type[BaseModel]) -> str:
    """The required keys with one allowed value, which select this model of a union."""
    fixed = {key: get_args(field.annotation) for key, field in model.model_fields.items() if field.is_required()}
    return ", ".join(
        f"`{key} = {_render_literal(values[0])}`"
        for key, values in fixed.items()
        if get_origin(model.model_fields[key].annotation) is Literal and len(values) == 1
    )


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]


def _render_keys(model: type[BaseModel], wanted: KeyTable) -> str:
    rows = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if not field.description:
            raise MissingDescription(f"{model.__name__}.{name} has no description")
        allowed = _describe_allowed(field.annotation, tuple(field.metadata), wanted.python)
        rows.append((f"`{wanted.prefix}{key}`", allowed, _render_default(field, wanted.python), field.description))
    return _render_markdown_table(("Key", "Allowed", "Default", "Meaning"), rows)


def _render_markdown_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    drawn = [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |\n" for row in (titles, *rows)]
    return "".join((drawn[0], "|---" * len(titles), "|\n", *drawn[1:]))


def _describe_allowed(annotation: Any, rules: tuple[Any, ...], python: bool) -> str:
    """Allowed values of a key, in the words of its refusal."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe_allowed(inner[0], (*inner[1:], *rules), python)
    if RISING in rules:
        return (
            f"{_describe_allowed(annotation, tuple(one for one in rules if one is not RISING), python)}, "
            f"the lower one first"
        )
    if said := _validator_message(
        [rule.func for rule in rules if isinstance(rule, (AfterValidator, PlainValidator))], annotation
    ):
        return said
    if origin in (Union, UnionType):
        if len(models := _union_models(annotation)) > 1:
            return f"a table, one of {', '.join(map(_model_tag, models))}"
        return ", or ".join(_describe_allowed(one, rules, python) for one in inner if one is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{_render_literal(one)}`" for one in inner)
    if origin is tuple:
        listed = inner[:-1] if inner[-1] is Ellipsis else inner
        some = " of at least one" if any(isinstance(rule, MinLen) for rule in rules) else ""
        many = f"list{some}" if inner[-1] is Ellipsis else f"{len(inner)} values"
        return f"{many}, each {_describe_allowed(listed[0], (), python)}"
    if origin is dict:
        return f"table: {_describe_allowed(inner[0], (), python)} \u2192 {_describe_allowed(inner[1], (), python)}"
    if annotation is bool:
        return "`True`, `False`" if python else "`true`, `false`"
    if annotation is int:
        return _describe_range(rules)
    return "a table" if _union_models(annotation) else "text"


def _validator_message(checks: list[Callable[..., object]], annotation: Any) -> str:
    """The message of the last check that refuses a value which no type of ours takes; "" without one."""
    found = ""
    for check in checks:
        try:
            check(-1 if annotation is int else "\0")
        except ValueError as error:
            found = str(error)
    return re.sub(r"([*~_\[\]])", r"\\\1", found)


def _describe_range(rules: tuple[Any, ...]) -> str:
    # pydantic keeps a field's own bounds one by one, and an annotated type's together
    bounds = [bound for rule in rules for bound in (rule.metadata if isinstance(rule, FieldInfo) else (rule,))]
    low = [one.ge for one in bounds if isinstance(one, Ge)] + [one.gt for one in bounds if isinstance(one, Gt)]
    high = [one.le for one in bounds if isinstance(one, Le)] + [one.lt for one in bounds if isinstance(one, Lt)]
    if high:
        return f"{low[0]} to {high[0]}"
    above = any(isinstance(one, Gt) for one in bounds)
    return f"a whole number {'above' if above else 'from'} {low[0]}" if low else "a whole number"


def _render_literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _render_default(field: FieldInfo, python: bool) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "each key's own"
    if value is None or value in ("", (), {}):
        return "none"
    return f"`{value}`" if python else f"`{_render_literal(value)}`"


def main() -> None:
    """Write what is stale, and say which pages."""
    from checks.results import render_report_schema

    reports = (SCHEMA, json.dumps(render_report_schema(), indent=2) + "\n")
    for path, text in (*render_pages(), reports):
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)} written anew\n")


if __name__ == "__main__":
    main()
