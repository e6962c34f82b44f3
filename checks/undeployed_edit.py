"""The difference between the generation that a host runs and the declared one, where the host's is intact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from checks.effective_units import describe_difference, find_missing_relations, find_property_differences
from checks.survey.processes import Processes, executed_command
from checks.survey.serving import Generations, StartRecord, StoredGeneration
from checks.survey.units import ExpectedUnit, UnitSurvey
from checks.unit_settings import parse_unit_settings, split_quoted_words
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import TargetState
from rigwright.serving.generation import Generation
from rigwright.supply.lock import Artefact

LONGEST = 40  # characters of a setting's value that are shown
SHOWN = 3  # differences of an instance that are shown


@dataclass(frozen=True)
class GenerationEdit:
    """An edit of the inventory, or another lock or release, that no deploy has brought to the host."""

    number: int
    """The generation that the host runs."""
    intact: bool
    """Whether the files of that generation are those that a deploy has written."""
    changes: tuple[str, ...]
    """Differences in words: instance and setting, as far as known."""
    added: frozenset[str]
    """Parts that only the declared generation has: instances, weights, engines, listeners."""
    changed: frozenset[str]
    """Instances that both have, with other settings; the processes and units in force are those of the host's."""
    changed_processes: frozenset[str]
    """Those of `changed` of which each main process is the one that the host's generation starts."""
    changed_ports: frozenset[str]
    """Those of `changed` with another port."""
    changed_cards: frozenset[str]
    changed_variants: frozenset[str]
    added_units: tuple[str, ...]
    changed_units: tuple[str, ...]
    removed_units: tuple[str, ...]
    added_users: tuple[str, ...]
    digests: tuple[str, ...]
    """Of the texts that units of the host's generation are started from, as checks shorten them."""
    mark: str
    """The host's generation, as its target names it."""
    foreign: tuple[str, ...]
    """Differences in force between systemd and the host's own generation, which the edit does not explain."""


def weight_part(weight: Artefact) -> str:
    """A weight file as checks name it."""
    return f"{weight.name}:{weight.path}" if weight.group else weight.name


def files_digest(stored: StoredGeneration) -> str:
    """The digest of a generation's files as they are, as `Generation.digest` makes it."""
    files = {path: text.split(" ") for path, text in stored.files.items() if not text.startswith("-> ")}
    lines = [f"{sha256}  {path}" for path, (sha256, *_) in sorted(files.items())]
    lines += [f"mode {' '.join(mode)} {path}" for path, (_, *mode) in sorted(files.items())]
    links = {path: text[3:] for path, text in stored.files.items() if text.startswith("-> ")}
    lines += [f"link {path} {target}" for path, target in sorted(links.items())]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def find_edit(
    found: Generations,
    units: UnitSurvey | None,
    started: Mapping[str, StartRecord],
    rig: Rig,
    desired: TargetState,
    processes: Processes | None = None,
) -> GenerationEdit | None:
    """The edit that a host lacks; None where it runs the declared generation, or none.

    Args:
        found: The host's generations.
        units: Its units as systemd has them; None where that is not known.
        started: Unit -> the record of its start.
        rig: The declared rig.
        desired: Its target state on the host.
        processes: Those of its services; None where they are not known.
    """
    stored = next((one for one in found.kept if found.current == f"generations/{one.number}"), None)
    target = desired.generation
    if stored is None or not stored.sealed or stored.sealed == target.digest:
        return None
    try:
        manifest = json.loads(found.texts.get("manifest.json", "{}"))
    except (ValueError, RecursionError):
        manifest = {}
    declared = json.loads(target.files["manifest.json"])
    old, new = _mapping(manifest, "instances"), _mapping(declared, "instances")
    texts = {path: text for path, text in found.texts.items() if path.startswith(("units/", "env/"))}
    old_units, new_units = _unit_names(texts), _unit_names(target.files)
    changed_units = [name for name in old_units if texts[f"units/{name}"] != target.files.get(f"units/{name}")]
    differences = {name: list(_instance_changes(name, old, new, texts, target)) for name in new if name in old}
    changed = {name for name, rows in differences.items() if rows}
    changes = [f"{name} is new" for name in new if name not in old]
    changes += [f"{name} is no longer declared" for name in old if name not in new]
    changes += [f"{name}: {_first(rows)}" for name, rows in differences.items() if rows]
    if not changes:
        changes = _changed_areas(stored, target)
    foreign: list[str] = []
    unclear: list[str] = []
    for name in changed_units if units else ():
        if units and name in units.shown:
            try:
                foreign += _foreign(units, name, texts[f"units/{name}"], desired.facts.memory_kib)
            except (ValueError, KeyError, IndexError):  # a text that this release does not understand explains nothing
                unclear.append(name)
    for name in list(changed):
        own = _mapping(_mapping(old, name), "units")
        current = all(started[unit].lines[:1] == [digest] for unit, digest in own.items() if unit in started)
        if (
            not current
            or not own.keys().isdisjoint(unclear)
            or any(text.startswith(tuple(f"{unit} " for unit in own)) for text in foreign)
        ):
            changed.remove(name)
    added_units = [name for name in new_units if name not in old_units]
    return GenerationEdit(
        number=stored.number,
        intact=files_digest(stored) == stored.sealed,
        changes=tuple(changes),
        added=frozenset({*(name for name in new if name not in old), *_added_parts(manifest, rig, desired)}),
        changed=frozenset(changed),
        changed_processes=frozenset(
            name
            for name in changed
            if all(
                _runs_unit(processes, unit, name, texts, manifest) for unit in _mapping(_mapping(old, name), "units")
            )
        ),
        changed_ports=frozenset(name for name in changed if _differs(name, "port", old, new)),
        changed_cards=frozenset(name for name in changed if _differs(name, "cards", old, new)),
        changed_variants=frozenset(name for name in changed if _differs(name, "variant", old, new)),
        added_units=(*added_units, *(str(_mapping(new, name).get("slice", "")) for name in new if name not in old)),
        changed_units=tuple(name for name in changed_units if name in new_units and name not in unclear),
        removed_units=tuple(name for name in old_units if name not in new_units),
        added_users=tuple(str(_mapping(new, name).get("user", "")) for name in new if name not in old),
        digests=tuple(sorted({digest[:12] for digest in _digests(manifest)})),
        mark=_mark(texts.get("units/rigwright.target", "")),
        foreign=tuple(foreign),
    )


def _runs_unit(processes: Processes | None, unit: str, instance: str, texts: Mapping[str, str], manifest: Any) -> bool:
    """Whether a unit's main process has the program, the arguments and the variables of the host's generation.

    A word or value that systemd expands may be anything.
    """
    service = processes.units.get(unit) if processes else None
    main = next((one for one in service.processes if one.pid == service.main), None) if service else None
    words = executed_command(texts.get(f"units/{unit}", ""))
    if main is None or not words:
        return False
    # of a script the kernel runs the distribution's interpreter
    before = main.words.index(words[0]) if main.exe.startswith("/usr/bin/") and words[0] in main.words[1:3] else 0
    engines = tuple(f"{folder}/" for folder in _mapping(manifest, "engines").values())
    if not before and not main.exe.startswith(engines):
        return False
    pairs = zip_longest(main.words[before:], words, fillvalue="")
    variables = dict(parse_unit_settings(texts.get(f"env/{instance}", "")))
    return all(has == word.replace("%%", "%") or "$" in word for has, word in pairs) and all(
        main.environment.get(name) == " ".join(split_quoted_words(value)) for name, value in variables.items()
    )


def _mapping(found: Any, name: str) -> dict[str, Any]:
    """A table of a manifest on a host, which may be of another version; empty for none."""
    inside = found.get(name) if isinstance(found, dict) else None
    return inside if isinstance(inside, dict) else {}


def _rows(manifest: Any, name: str) -> list[dict[str, Any]]:
    inside = manifest.get(name) if isinstance(manifest, dict) else None
    return [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else []


def _unit_names(files: Mapping[str, str]) -> list[str]:
    return sorted(path.removeprefix("units/") for path in files if path.startswith("units/"))


def _differs(name: str, key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(_mapping(old, name).get(key) != _mapping(new, name).get(key))


def _first(rows: list[str]) -> str:
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return ", ".join(rows[:SHOWN]) + more


def _instance_changes(
    name: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    texts: Mapping[str, str],
    target: Generation,
) -> Iterator[str]:
    """Settings of an instance that differ: those of the inventory first, then those of its unit and environment."""
    for key in ("variant", "port", "cards"):
        before, after = (_mapping(one, name).get(key) for one in (old, new))
        if before != after:
            yield f"{key} {_short(before)} -> {_short(after)}"
    for unit in sorted({*_mapping(old[name], "units"), *_mapping(new[name], "units")}):
        yield from _text_changes(texts.get(f"units/{unit}", ""), target.files.get(f"units/{unit}", ""))
    path = f"env/{name}"
    had, has = (dict(parse_unit_settings(text)) for text in (texts.get(path, ""), target.files.get(path, "")))
    for key in sorted({*had, *has} - {"RW_DIGEST"}):
        if had.get(key) != has.get(key):
            yield f"the variable {key}"


def _text_changes(before: str, after: str) -> Iterator[str]:
    old, new = (_settings(text) for text in (before, after))
    for name in [*old, *(one for one in new if one not in old)]:
        if name in ("Description", "Environment") or old.get(name) == new.get(name):
            continue
        if name.startswith("Exec"):
            words, others = (set(split_quoted_words(" ".join(one.get(name, ())))) for one in (old, new))
            yield f"{name} {_signed(others - words, '+')}{_signed(words - others, '-')}".rstrip()
        else:
            yield f"{name} {_short(' '.join(old.get(name, ())))} -> {_short(' '.join(new.get(name, ())))}"


def _settings(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in parse_unit_settings(text):
        found.setdefault(name, []).append(value)
    return found


def _signed(words: set[str], sign: str) -> str:
    return "".join(f"{sign}{_short(word)} " for word in sorted(words)[:SHOWN])


def _short(value: object) -> str:
    text = str(value) if value not in (None, "", []) else "none"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _changed_areas(stored: StoredGeneration, target: Generation) -> list[str]:
    """Files that differ, of an edit that is about no instance: another gateway, lock or release of Rigwright."""
    declared = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in target.files.items()}
    paths = [path for path, sha256 in declared.items() if stored.files.get(path, "").partition(" ")[0] != sha256]
    areas = sorted({path.partition("/")[0] for path in paths} - {"manifest.json", "units"})
    return [f"the generation's {', '.join(areas)}"] if areas else []


def _digests(manifest: Any) -> Iterator[str]:
    for name in _mapping(manifest, "instances"):
        units = _mapping(_mapping(_mapping(manifest, "instances"), name), "units")
        yield from (digest for digest in units.values() if isinstance(digest, str))
    for row in (*_rows(manifest, "listeners"), *_rows(manifest, "gateway")):
        yield from (row[key] for key in ("started_from", "configured_from") if isinstance(row.get(key), str))


def _mark(text: str) -> str:
    described = [value for name, value in parse_unit_settings(text) if name == "Description"]
    return described[-1].rpartition(" ")[2] if described else ""


def _foreign(units: UnitSurvey, name: str, text: str, memory_kib: int) -> Iterator[str]:
    one = ExpectedUnit(name, f"{UNIT_FOLDER}/{name}", "", text)
    for found in (*find_property_differences(units, one, memory_kib), *find_missing_relations(units, one)):
        yield describe_difference(found)


def _added_parts(manifest: Any, rig: Rig, desired: TargetState) -> Iterator[str]:
    """Names of weights, engines and listeners that the host's generation has not."""
    weights, engines = _mapping(manifest, "weights"), _mapping(manifest, "engines").values()
    for weight in loaded_weights(rig.instances):
        if rig.roots.weight_path(weight) not in weights:
            yield weight_part(weight)
    for name, made in desired.installations.items():
        if rig.roots.installation_path(made.folder) not in engines:
            yield name
    sockets = json.dumps([row.get("sockets") for row in _rows(manifest, "gateway")])
    for name, listener in (rig.gateway.listeners if rig.gateway else {}).items():
        if f"{listener.address}:{listener.port}" not in sockets:
            yield name
