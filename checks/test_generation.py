"""Generations."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from checks import DEPLOY, Drift, ItemText, check, expect
from checks.drift_text import expect_none, shorten_digest
from checks.remedy import remove_paths
from checks.survey.answers import SurveyAnswers
from checks.survey.serving import GENERATIONS
from checks.survey.trees import MISSING, OTHER, TREES
from checks.survey.units import UNITS
from rigwright.containers.container_files import spec_program_path
from rigwright.fetch_job_spec import authority_path
from rigwright.host.generation_layout import ACTIVATING, file_mode
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.monitoring import self_check
from rigwright.monitoring.monitoring_units import monitoring_folder as monitoring_folder
from rigwright.nvidia.cards.card_setting_files import program_folder, record_path
from rigwright.serving.generation import Generation
from rigwright.serving.instance_units import STOPPED
from rigwright.weights.weight_server import config_path


@check(
    "G01",
    "the current generation is the declared one, unmodified",
    severity="high",
    why="the next start or boot serves another configuration than the inventory's",
)
def test_current(survey: SurveyAnswers, roots: Roots, target_generation: Generation) -> None:
    found = survey.read(GENERATIONS)
    current = next((kept for kept in found.kept if found.current == f"generations/{kept.number}"), None)
    if current is None:
        raise Drift(f"a generation that {roots.config}/current points to", found.current or "no link", DEPLOY)
    declared = {path: f"{sha256(text)} {file_mode(text)}" for path, text in target_generation.files.items()}
    declared |= {path: f"-> {target}" for path, target in target_generation.links.items()}
    others = sorted(path for path in {**declared, **current.files} if declared.get(path) != current.files.get(path))
    folder = f"{roots.generations}/{current.number}"
    changed = [_describe_change(f"{folder}/{path}", declared.get(path), current.files.get(path)) for path in others]
    found_files = ItemText.from_items(changed, shown=3)
    expect(found_files, f"the declared files in generation {current.number}", DEPLOY, holds=not others)
    expect(shorten_digest(current.sealed), shorten_digest(target_generation.digest), DEPLOY)
    marker = f"{roots.config}/{ACTIVATING} of an interrupted activation"
    expect(marker, "a completed activation", DEPLOY, holds=not found.activating)


@check(
    "G02",
    "systemd has loaded the current generation",
    severity="high",
    why="after a crash, systemd starts the units that it has loaded",
)
def test_systemd_has_read_it(survey: SurveyAnswers, target_generation: Generation) -> None:
    units = survey.read(UNITS)
    read = units.property_value("rigwright.target", "Description").rpartition(" ")[2]
    expect(read or "no generation", target_generation.mark, DEPLOY)
    stale = [name for name in target_generation.unit_files if units.property_value(name, "NeedDaemonReload") == "yes"]
    expect_none((f"an older {name}" for name in stale), "all units as in their files", DEPLOY)


@check(
    "G03",
    "earlier generations are complete, for rollback",
    severity="low",
    why="a rollback needs a complete generation",
)
def test_way_back(survey: SurveyAnswers, roots: Roots) -> None:
    found, known = survey.read(GENERATIONS), survey.read(TREES)
    gone = sorted(PurePosixPath(path).name for path in known.gone if path.startswith(f"{roots.generations}/"))
    told = f"{', '.join(gone)} gone"
    expect(told, "every kept generation", DEPLOY, holds=not gone)
    for kept in found.kept:
        if found.current == f"generations/{kept.number}":
            continue
        path = f"{roots.generations}/{kept.number}"
        tree = known.tree(path)
        wrong = tree.unrecorded or ", ".join(one.path for one in tree.changes if one.what in (OTHER, MISSING))
        expect(f"{path}: {wrong}", "unmodified earlier generations", DEPLOY, holds=not wrong)


@check(
    "G04",
    "everything that earlier generations refer to exists",
    severity="low",
    why="a rollback would not start",
)
def test_way_back_leads_somewhere(survey: SurveyAnswers, roots: Roots, target_generation: Generation) -> None:
    found = survey.read(GENERATIONS)
    # the next deploy writes the missing files, and other checks report them
    declared = set(target_generation.files["references"].splitlines())
    gone = {kept.number: sorted({*kept.lost} - declared) for kept in found.kept}
    broken = {number: paths for number, paths in gone.items() if paths and found.current != f"generations/{number}"}
    lost = sorted({path for paths in broken.values() for path in paths})
    folders = [f"{roots.generations}/{number}" for number in broken]
    expect(
        ItemText.from_items([f"no {path}" for path in lost], shown=3),
        "their referenced files",
        remove_paths(*folders) + DEPLOY,
        holds=not lost,
    )


@check(
    "G05",
    "the configuration directory contains no unknown files",
    severity="low",
    why="no lock or inventory lists an unknown file, and no deploy maintains or removes it",
)
def test_nothing_lies_beside(survey: SurveyAnswers, roots: Roots, declared_instances: tuple[Instance, ...]) -> None:
    found = [name for name in survey.read(GENERATIONS).beside if name not in known_names(roots)]
    # the names of instances that were stopped by hand keep them stopped over boots: there are none while all run
    if STOPPED in found:
        units = survey.read(UNITS)
        if any(units.property_value(one.unit, "ActiveState") != "active" for one in declared_instances):
            found.remove(STOPPED)
    paths = [f"{roots.config}/{name}" for name in found]
    expect(", ".join(paths), "only files that a deploy wrote", remove_paths(*paths), holds=not paths)


def sha256(text: str) -> str:
    """Of a text as a file."""
    return hashlib.sha256(text.encode()).hexdigest()


def known_names(roots: Roots) -> frozenset[str]:
    """The allowed names in the folder of the configuration, declared or left by an earlier rig."""
    paths = [
        roots.generations,
        roots.credentials,
        authority_path(roots),
        record_path(roots),
        program_folder(roots),
        config_path(roots),
        spec_program_path(roots).rpartition("/")[0],
        monitoring_folder(roots),
        self_check.program_folder(roots),
    ]
    names = {PurePosixPath(path).name for path in paths}
    return frozenset({*names, "current", ACTIVATING, "lost+found"})


def _describe_change(path: str, wanted: str | None, found: str | None) -> ItemText:
    shown = f"{path} {'added' if wanted is None else 'missing' if found is None else 'changed'}"
    return ItemText(shown, shown if found is None else f"{shown}: {found}")
