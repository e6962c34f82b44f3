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

from rigwright.declaration.connection import Connection
from rigwright.engines import kinds
from rigwright.engines.log import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.gateway.clients import CLIENTS, Way
from rigwright.model.catalog import Card, Model
from rigwright.model.containers.entry import Containers
from rigwright.model.engines.evidence import Evidence
from rigwright.model.engines.purpose import Blocked, Purpose
from rigwright.model.entry import Driver, RigEntry, Roots, Share
from rigwright.model.envs.keys import EnvKeys
from rigwright.model.gateway.entry import Gateway, ListenerEntry, ModelEntry
from rigwright.model.instance_entry import InstanceEntry
from rigwright.model.monitoring.entry import Limits, Monitoring, Receiver, Server
from rigwright.model.registries import Registry
from rigwright.operate import kernel_messages
from rigwright.patches.keys import PatchKeys, Target
from rigwright.paths import ROOT
from rigwright.plugins.keys import Doctor, Line, Mode, PluginKeys
from rigwright.supply import archives, bundle
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact, LockFile
from rigwright.types import RISING

BLOCK = re.compile(
    r"(?P<begin><!-- keys of (?P<name>[a-z.-]+) -->\n)(?P<table>.*?)(?P<end><!-- end of (?P=name) -->\n)", re.DOTALL
)

BAR = "\\|"
SCHEMA = ROOT / "docs" / "check.schema.json"
"""What `rigwright check --json` prints."""


@dataclass(frozen=True)
class Table:
    """What a table is made from."""

    of: Any
    """A model, or several of which a key says which one it is: a union with a discriminator."""
    prefix: str = ""
    """What stands before each key."""
    python: bool = False
    """Whether it is written in Python, not TOML."""


TABLES = {
    "rig": Table(RigEntry, python=True),
    "connection": Table(Connection, python=True),
    "instance": Table(InstanceEntry, python=True),
    "driver": Table(Driver, "driver.", python=True),
    "containers": Table(Containers, "containers.", python=True),
    "roots": Table(Roots, "roots.", python=True),
    "share": Table(Share, "share.", python=True),
    "registry": Table(Registry, python=True),
    "gateway": Table(Gateway, "gateway.", python=True),
    "gateway-listener": Table(ListenerEntry, python=True),
    "gateway-model": Table(ModelEntry, python=True),
    "monitoring": Table(Monitoring, "monitoring.", python=True),
    "monitoring-server": Table(Server, python=True),
    "monitoring-receiver": Table(Receiver, python=True),
    "monitoring-limits": Table(Limits, python=True),
    "input": Table(Input),
    "model": Table(Model),
    # variants in containers have the keys of what is in those
    **{f"variant-{name}": Table(kind.variant_keys) for name, kind in kinds().items() if not kind.contained_by},
    **{f"engine-{name}": Table(kind.engine_keys) for name, kind in kinds().items()},
    "evidence": Table(Evidence),
    "purpose": Table(Purpose),
    "blocked": Table(Blocked),
    "env": Table(EnvKeys),
    "patch": Table(PatchKeys),
    "plugin": Table(PluginKeys),
    "plugin-mode": Table(Mode),
    "plugin-doctor": Table(Doctor, "doctor."),
    "plugin-line": Table(Line),
    "patch-target": Table(Target),
    "card": Table(Card),
    "lock": Table(LockFile),
    "artefact": Table(Artefact),
    "bundle": Table(bundle.Index),
    "bundle-suite": Table(archives.Suite),
    "bundle-file": Table(bundle.Row),
}


class Undescribed(Exception):
    """A key has no description."""


def pages(folder: Path = ROOT / "docs") -> Iterator[tuple[Path, str]]:
    """Every page with a table, and its text with the tables as they should be.

    Raises:
        KeyError: a page asks for a table that there is not.
        Undescribed: the model of a table has a key that nobody described.
    """
    for path in sorted(folder.glob("*.md")):
        text = path.read_text()
        made = BLOCK.sub(lambda found: f"{found['begin']}\n{table(found['name'])}\n{found['end']}", text)
        if BLOCK.search(text):
            yield path, made


def table(name: str) -> str:
    """One table, as Markdown.

    Raises:
        KeyError: there is none of that name.
        Undescribed: a key of its model has no description.
    """
    if name in OTHERS:
        return OTHERS[name]()
    wanted = TABLES[name]
    models = _models(wanted.of)
    if len(models) == 1:
        return _keys(models[0], wanted)
    return "\n".join(f"**{_tag(one)}** {_first_line(one)}\n\n{_keys(one, wanted)}" for one in models)


def _checks() -> str:
    """All checks, a table a file of them."""
    from checks import catalogue

    parts: dict[str, list[tuple[str, ...]]] = {}
    for one in catalogue.every():
        looks = ", ".join(f"`{section.name}`" for section in one.sections)
        parts.setdefault(one.file, []).append((one.id, one.severity, one.title, one.why, looks))
    titles = ("Id", "Severity", "What holds", "What goes wrong where it does not", "Decided from")
    return "\n".join(f"**{file.replace('_', ' ')}**\n\n{_drawn(titles, rows)}" for file, rows in parts.items())


def _sections() -> str:
    """The parts of the survey."""
    from checks import catalogue
    from checks.survey.blind import BLIND
    from checks.survey.sections import SECTIONS

    rows = ((f"`{one.name}`", catalogue.looks(one), BLIND[one.name]) for one in SECTIONS)
    return _drawn(("Part", "What it looks at", "What it cannot see"), rows)


def _symptoms() -> str:
    """What engines' logs betray: a table of what every one may say, then one of each kind's own."""
    parts: dict[str, tuple[Cause, ...]] = {
        "Any engine": COMMON_CAUSES,
        "The kernel and systemd": kernel_messages.CAUSES,
    }
    for name, kind in sorted(kinds().items()):
        # what is in a container says what it says outside of one
        if not kind.contained_by:
            parts[name] = tuple(one for one in kind.causes if one not in COMMON_CAUSES)
    titles = ("The log says", "Likely cause, and what helps", "Check")
    return "\n".join(
        f"**{title}**\n\n{_drawn(titles, ((f'{_matched(one.pattern)}', _meaning(one), one.check) for one in causes))}"
        for title, causes in parts.items()
    )


def _matched(pattern: str) -> str:
    """A pattern as a page shows it, in a code span that a table can hold."""
    return f"`{pattern}`"


def _meaning(cause: Cause) -> str:
    said = re.sub(r"([*_<>])", r"\\\1", cause.means)
    return f"{'harmless: ' if cause.harmless else ''}{said}{', if it is the last line' if cause.last else ''}"


def _clients() -> str:
    """What each client is told of one model at one gateway."""
    way = Way("box1", "qwen3.6-27b", "http://192.0.2.7:8000/v1", keyed=True, listener="lan")
    parts = (f"**{name}**: {one.where}\n\n```\n{one.made(way)}```\n" for name, one in CLIENTS.items())
    return "\n".join(parts)


def _alerts() -> str:
    """What somebody is told of, where every limit is declared."""
    from rigwright.model.monitoring.entry import Limits
    from rigwright.monitoring.rules import alerts

    rows = []
    for one in alerts(Limits(ttft_p99_s=2.0)):
        says = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), one.says)
        says = re.sub(r"\{\{ \$value[^}]*\}\}", "N", says)
        says = re.sub(r"\{\{ if [^}]*\}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}", r"\1, or \2", says)
        rows.append((one.name, one.severity, says, f"{one.minutes} min" if one.minutes else "at once"))
    return _drawn(("Alert", "Severity", "Says", "After"), rows)


def _fields() -> str:
    """The rules for request fields."""
    from rigwright.gateway.fields import request_rules

    rows = []
    for one in request_rules():
        places = ", ".join(f"`{place}`" for place in one.at)
        paths = f" (on {', '.join(f'`/v1/{path}`' for path in one.paths)})" if one.paths else ""
        demand = re.sub(r"([*_<>])", r"\\\1", one.demand)
        rows.append((f"`{one.name}`", places + paths, demand, one.reason, ", ".join(one.source)))
    return _drawn(("Rule", "Fields", "What it demands", "Why", "Source"), rows)


def _root_programs() -> str:
    """What root starts on hosts."""
    from rigwright.supply.root_programs import PROGRAMS, WHERE

    rows = [(", ".join(f"`{name}`" for name in one.names), WHERE[one.origin], one.source, one.note) for one in PROGRAMS]
    return _drawn(("Programs", "Their bytes", "Package, group or source", "How"), rows)


OTHERS = {
    "fields": _fields,
    "root-programs": _root_programs,
    "clients": _clients,
    "symptoms": _symptoms,
    "checks": _checks,
    "survey": _sections,
    "alerts": _alerts,
}


def _models(of: Any) -> list[type[BaseModel]]:
    """The models of a union, in their order; of a model, itself."""
    if isinstance(of, type):
        return [of] if issubclass(of, BaseModel) else []
    return [model for inner in get_args(of) for model in _models(inner)]


def _tag(model: type[BaseModel]) -> str:
    """What says that it is this one of several: the keys that allow one value, and have to be there."""
    fixed = {key: get_args(field.annotation) for key, field in model.model_fields.items() if field.is_required()}
    return ", ".join(
        f"`{key} = {_literal(values[0])}`"
        for key, values in fixed.items()
        if get_origin(model.model_fields[key].annotation) is Literal and len(values) == 1
    )


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]


def _keys(model: type[BaseModel], wanted: Table) -> str:
    rows = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if not field.description:
            raise Undescribed(f"{model.__name__}.{name} has no description")
        allowed = _allowed(field.annotation, tuple(field.metadata), wanted.python)
        rows.append((f"`{wanted.prefix}{key}`", allowed, _default(field, wanted.python), field.description))
    return _drawn(("Key", "Allowed", "Default", "Meaning"), rows)


def _drawn(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    drawn = [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |\n" for row in (titles, *rows)]
    return "".join((drawn[0], "|---" * len(titles), "|\n", *drawn[1:]))


def _allowed(annotation: Any, rules: tuple[Any, ...], python: bool) -> str:
    """What a key may be, in the words that refuse all else."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allowed(inner[0], (*inner[1:], *rules), python)
    if RISING in rules:
        return f"{_allowed(annotation, tuple(one for one in rules if one is not RISING), python)}, the lower one first"
    if said := _said([rule.func for rule in rules if isinstance(rule, (AfterValidator, PlainValidator))], annotation):
        return said
    if origin in (Union, UnionType):
        if len(models := _models(annotation)) > 1:
            return f"a table, one of {', '.join(map(_tag, models))}"
        return ", or ".join(_allowed(one, rules, python) for one in inner if one is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{_literal(one)}`" for one in inner)
    if origin is tuple:
        listed = inner[:-1] if inner[-1] is Ellipsis else inner
        some = " of at least one" if any(isinstance(rule, MinLen) for rule in rules) else ""
        many = f"list{some}" if inner[-1] is Ellipsis else f"{len(inner)} values"
        return f"{many}, each {_allowed(listed[0], (), python)}"
    if origin is dict:
        return f"table: {_allowed(inner[0], (), python)} \u2192 {_allowed(inner[1], (), python)}"
    if annotation is bool:
        return "`True`, `False`" if python else "`true`, `false`"
    if annotation is int:
        return _range(rules)
    return "a table" if _models(annotation) else "text"


def _said(checks: list[Callable[..., object]], annotation: Any) -> str:
    """What the last check says that refuses a value which no type of ours takes; "" without one."""
    found = ""
    for check in checks:
        try:
            check(-1 if annotation is int else "\0")
        except ValueError as error:
            found = str(error)
    return re.sub(r"([*~_\[\]])", r"\\\1", found)


def _range(rules: tuple[Any, ...]) -> str:
    # pydantic keeps a field's own bounds one by one, and an annotated type's together
    bounds = [bound for rule in rules for bound in (rule.metadata if isinstance(rule, FieldInfo) else (rule,))]
    low = [one.ge for one in bounds if isinstance(one, Ge)] + [one.gt for one in bounds if isinstance(one, Gt)]
    high = [one.le for one in bounds if isinstance(one, Le)] + [one.lt for one in bounds if isinstance(one, Lt)]
    if high:
        return f"{low[0]} to {high[0]}"
    above = any(isinstance(one, Gt) for one in bounds)
    return f"a whole number {'above' if above else 'from'} {low[0]}" if low else "a whole number"


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(field: FieldInfo, python: bool) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "each key's own"
    if value is None or value in ("", (), {}):
        return "none"
    return f"`{value}`" if python else f"`{_literal(value)}`"


def main() -> None:
    """Write what is stale, and say which pages."""
    from checks.results import schema

    reports = (SCHEMA, json.dumps(schema(), indent=2) + "\n")
    for path, text in (*pages(), reports):
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)} written anew\n")


if __name__ == "__main__":
    main()
