"""The files of a catalogue, read and refused: a kind of engine says which keys its entries may have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)

from rigwright import toml
from rigwright.engines import kinds
from rigwright.engines.engine_interface import Kind
from rigwright.host.supported_systems import SYSTEMS
from rigwright.model.catalog_schema import Card, Catalog, EnvKeys, ModelKeys
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, group_of
from rigwright.model.engine_schema import BlockedVariant, DerivedEvidence, EngineKeys, VariantKeys
from rigwright.model.nvidia_tables import DRIVER, load_driver_tables
from rigwright.plugins.plugin import PluginKeys
from rigwright.problems import (
    FrozenModel,
    Invalid,
    Problem,
    describe_unknown,
    format_value,
    suggestion,
    translate_validation,
)
from rigwright.supply.lock_inputs import Input
from rigwright.supply.root_programs import CUDA
from rigwright.validated_types import CatalogName, VariantName
from rigwright.validation_passes import find_all_errors

M = TypeVar("M", bound=BaseModel)


class CatalogFile(FrozenModel):
    """The tables of one catalogue file."""

    cards: dict[CatalogName, Card] = Field(default_factory=dict)
    models: dict[CatalogName, ModelKeys] = Field(default_factory=dict)
    # the kind of engine has their keys: see load_catalog
    engines: dict[CatalogName, Any] = Field(default_factory=dict)
    variants: dict[VariantName, Any] = Field(default_factory=dict)
    blocked: dict[VariantName, BlockedVariant] = Field(default_factory=dict)
    envs: dict[CatalogName, EnvKeys] = Field(default_factory=dict)
    plugins: dict[CatalogName, PluginKeys] = Field(default_factory=dict)
    inputs: dict[CatalogName, Input] = Field(default_factory=dict)
    # valid variants by name and by the keys of their engine's kind: each rig of an inventory reads the same catalogues,
    # and `load_toml` returns one object for one text
    _validated: dict[tuple[str, type[VariantKeys]], VariantKeys] = PrivateAttr(default_factory=dict)


class InvalidFlags(Invalid):
    """Mistakes in flags, variables and unknown keys of variants: all names of the catalogue are known nevertheless."""

    def __init__(self, problems: list[Problem], catalog: Catalog) -> None:
        super().__init__(problems)
        self.catalog = catalog
        """The catalogue without those keys."""


class UncheckedVariant(VariantKeys):
    """A variant of an unknown engine, whose keys are unknown, too."""

    model_config = ConfigDict(extra="ignore")


def _find_misnamed(path: Path, inputs: dict[str, Input]) -> list[Problem]:
    """Refuse groups of packages without a name for packages, and other inputs with such a name."""
    if not any(
        one.kind == "deb" or name.startswith((DRIVER, TOOLKIT_ARCHIVE, DOCKER_ARCHIVE)) for name, one in inputs.items()
    ):
        return []
    try:
        known = load_driver_tables(path.parent.parent)
    except Invalid as error:
        return error.problems
    drivers = {f"{DRIVER}{system}" for offer in known.offers for system in offer.systems}
    schemes = dict.fromkeys(drivers, ("nvidia", "apt")) | {TOOLKIT_ARCHIVE: (TOOLKIT_ARCHIVE,)}
    schemes |= {group_of(DOCKER_ARCHIVE, system): (DOCKER_ARCHIVE,) for system in SYSTEMS}
    found = []
    for name, one in inputs.items():
        if one.kind == "deb" and name not in schemes:
            found.append(Problem(str(path), f"inputs.{name}", describe_unknown("input of packages", name, schemes)))
        elif one.kind == "deb" and (scheme := one.sources[0].partition(":")[0]) not in schemes[name]:
            said = f"{scheme}: is refused: must be {' or '.join(f'{word}:' for word in schemes[name])}"
            found.append(Problem(str(path), f"inputs.{name}.sources", said))
        elif one.kind != "deb" and name in schemes:
            found.append(Problem(str(path), f"inputs.{name}.kind", f"{one.kind} is refused: must be deb"))
    return found


def _find_kind(engine: object) -> Kind | None:
    """The kind of a declared engine; None if there is none of that name."""
    given = engine.get("kind") if isinstance(engine, dict) else None
    return kinds().get(given) if isinstance(given, str) else None


def _parse_engine(path: Path, name: str, data: object, problems: list[Problem]) -> EngineKeys | None:
    """One engine, by its kind's keys; None after adding its problems."""
    kind = _find_kind(data)
    if isinstance(data, dict) and kind is None:
        # its keys are unknown
        given = data.get("kind", "")
        text = f"{format_value(given)} is refused" if "kind" in data else "missing"
        text += suggestion(given if isinstance(given, str) else "", kinds())
        problems.append(Problem(str(path), f"engines.{name}.kind", text))
        return None
    model = kind.engine_keys if kind else EngineKeys
    return _validate_table(path, ("engines", name), model, data, problems)


def _parse_variant(
    path: Path,
    file: CatalogFile,
    name: str,
    engines: Mapping[str, object],
    problems: list[Problem],
    flag_problems: list[Problem],
) -> VariantKeys | None:
    """One variant, by the keys of its engine's kind; None after adding its problems. A variant whose mistakes are in
    flags, variables and unknown keys is returned without these.

    Args:
        path: The file.
        file: Tables of the file.
        name: Name of the variant.
        engines: All declared engines, valid or not.
        problems: Receives the problems.
        flag_problems: Receives those of flags, variables and unknown keys, if there are no others.
    """
    data = file.variants[name]
    if isinstance(data, dict) and "engine" not in data:
        near = difflib.get_close_matches("engine", [key.lower() for key in data], n=1)
        called = next((key for key in data if key.lower() in near), "")
        if called:
            given = str(data[called])
            wrong = "" if given in engines else f"; {describe_unknown('engine', given, engines)}"
            text = f'unknown key; did you mean "engine"?{wrong}'
            problems.append(Problem(str(path), f"variants.{name}.{called}", text))
        else:
            problems.append(Problem(str(path), f"variants.{name}.engine", "missing" + suggestion("", engines)))
        _validate_table(path, ("variants", name), UncheckedVariant, data | {"engine": "none"}, problems)
        return None
    kind = _find_kind(engines.get(str(data.get("engine")))) if isinstance(data, dict) else None
    model = kind.variant_keys if kind else UncheckedVariant
    if (name, model) not in file._validated:
        found: list[Problem] = []
        variant = _validate_table(path, ("variants", name), model, data, found)
        if variant is None:
            variant = _validate_without_flags(model, data)
            (problems if variant is None else flag_problems).extend(found)
            return variant
        file._validated[name, model] = variant
    return file._validated[name, model]


def _validate_without_flags(model: type[VariantKeys], data: object) -> VariantKeys | None:
    """A variant without its invalid flags, variables and unknown keys; None if it has other mistakes."""
    if not isinstance(data, dict):
        return None
    sound: dict[str, Any] = {key: dict(one) if isinstance(one, dict) else one for key, one in data.items()}
    for detail in find_all_errors(model, data):
        table, *inner = map(str, detail["loc"] or ("",))
        if detail["type"] == "extra_forbidden" and not inner:
            sound.pop(table, None)
        elif table in ("flags", "environment") and inner and isinstance(sound.get(table), dict):
            sound[table].pop(inner[0], None)
        else:
            return None
    try:
        return model.model_validate(sound)
    except ValidationError:
        return None


def _find_unknown_names(
    path: str, name: str, variant: VariantKeys, tables: Mapping[str, Mapping[str, object]]
) -> Iterator[Problem]:
    """Refuse unknown names in the purpose and evidence of a variant."""
    for index, card in enumerate(variant.purpose.cards if variant.purpose else ()):
        if card not in tables["cards"]:
            key = f"variants.{name}.purpose.cards[{index}]"
            yield Problem(path, key, describe_unknown("card", card, tables["cards"]))
    origin = variant.evidence.origin if isinstance(variant.evidence, DerivedEvidence) else ""
    if re.fullmatch(r"[a-z0-9.-]+/\S+", origin) and (origin == name or origin not in tables["variants"]):
        others = tables["variants"].keys() - {name}
        yield Problem(path, f"variants.{name}.evidence.origin", describe_unknown("other variant", origin, others))


def _validate_table(
    path: Path, place: tuple[str, str], model: type[M], data: object, problems: list[Problem]
) -> M | None:
    try:
        return model.model_validate(data)
    except ValidationError:
        problems += translate_validation(find_all_errors(model, data), model, str(path), "", within=place)
        return None


def load_catalog(folders: list[Path]) -> Catalog:
    """Read every *.toml of the folders, and find every snapshot of options in their flags/.

    Raises:
        InvalidFlags: mistakes in flags, variables and unknown keys of variants, and no others.
        Invalid: a mistake in a file, or one name twice in one folder.
    """
    merged: dict[str, dict[str, Any]] = {table: {} for table in CatalogFile.model_fields}
    places: dict[str, tuple[Path, CatalogFile]] = {}
    declared: dict[str, object] = {}
    problems: list[Problem] = []
    snapshots: dict[str, Path] = {}
    faulty = False
    for folder in folders:
        snapshots |= {path.name: path for path in folder.glob("flags/*") if path.suffix in (".txt", ".json")}
        here: dict[str, dict[str, Any]] = {table: {} for table in merged}
        for path in sorted(folder.glob("*.toml")):
            read, faults = toml.load_sound_entries(path, CatalogFile)
            problems += faults
            faulty |= bool(faults)
            if read is None:
                continue
            for table, entries in here.items():
                added = getattr(read, table)
                problems += [
                    Problem(str(path), f"{table}.{name}", "is listed twice") for name in added if name in entries
                ]
                entries.update(added)
            places |= dict.fromkeys(read.variants, (path, read))
            declared |= read.engines
            for name, data in read.engines.items():
                here["engines"][name] = _parse_engine(path, name, data, problems)
            problems += _find_misnamed(path, read.inputs)
            problems += [
                Problem(str(path), f"inputs.{name}.patches", f"must be left out: only input {CUDA} has patches")
                for name, one in read.inputs.items()
                if one.patches and name != CUDA
            ]
        for table, entries in here.items():
            merged[table] |= entries
    flag_problems: list[Problem] = []
    merged["variants"] = {
        name: _parse_variant(*places[name], name, declared, problems, flag_problems) for name in merged["variants"]
    }
    for name, variant in merged["variants"].items():
        problems += _find_unknown_names(str(places[name][0]), name, variant, merged) if variant and not faulty else ()
    if problems:
        raise Invalid([*problems, *flag_problems])
    patches = merged["inputs"][CUDA].patches if CUDA in merged["inputs"] else ()
    catalog = Catalog.model_construct(None, **merged, toolkit_patches=patches, snapshots=snapshots)
    if flag_problems:
        raise InvalidFlags(flag_problems, catalog)
    return catalog
