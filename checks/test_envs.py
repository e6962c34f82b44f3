"""Environments: a Python of its own with exactly the locked packages."""

from __future__ import annotations

import pytest
from packaging.utils import canonicalize_name

from checks import DEPLOY, Drift, ItemText, check, expect, report_drift
from checks.remedy import Remedy, instruction, remove_paths, restart_units
from checks.survey.answers import SurveyAnswers
from checks.survey.trees import PATCHED, TREES, patched_file_digests
from checks.test_nvidia_driver import gpus
from rigwright.envs.environment import Environment, prefix_folder
from rigwright.envs.installed_packages import locked_packages
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import EnvSpec, Instance
from rigwright.model.roots import Roots
from rigwright.supply.cuda_machine_code import find_machine_code_refusals

SHOWN = 3
CLOCK = 2.0
"""Seconds that the kernel's idea of when a process began may differ from a file's."""


@check(
    "V01",
    "the environment contains exactly the locked packages",
    severity="critical",
    why="an extra package, or another version, runs other code in the same process",
)
def test_distributions(survey: SurveyAnswers, roots: Roots, environment: Environment) -> None:
    described = survey.read(TREES).distributions[prefix_folder(roots.installation_path(environment.folder))]
    found, expected = {one for name in described if (one := _package(name))}, locked_packages(environment)
    cure = describe_env_reinstall(roots, environment)
    expect(", ".join(sorted(found - expected)), "only the locked ones", cure, holds=found <= expected)
    expect(", ".join(sorted(expected - found)), "all of the locked ones", cure, holds=found >= expected)


@check(
    "V02",
    "the driver supports the environment's CUDA version",
    severity="critical",
    why="a CUDA version that the driver does not support fails at the first call",
)
def test_cuda(survey: SurveyAnswers, declared_cards: tuple[Card, ...], environment: Environment) -> None:
    least = environment.least_driver
    if not least:
        pytest.skip("no part of it needs CUDA")
    found = sorted({one.driver for one in gpus(survey, declared_cards) if int(one.driver.partition(".")[0]) < least})
    expect(found, [], instruction(f"install a driver of branch {least} or newer"))


@check(
    "V03",
    "the environment has machine code for the rig's cards",
    severity="critical",
    why="a library without code for a card fails at its first call",
)
def test_machine_code(declared_cards: tuple[Card, ...], environment: Environment, env: EnvSpec) -> None:
    if not declared_cards:
        pytest.skip("the rig declares no cards")
    compiled = (*environment.packages, *(one.row for one in environment.plugins))
    found = {
        line
        for card in declared_cards
        for line in find_machine_code_refusals(compiled, env.for_other_cards, card.capability)[0]
    }
    expect(sorted(found), [], instruction("lock another version, or declare other cards"))


@check(
    "V04",
    "patched files are as declared, and processes started later and import them",
    severity="critical",
    why="a lost patch, or one that no process has loaded, has no effect: the bug that it fixes is back",
    blind="sys.path as a program of the environment itself changes it, and of processes that hide their words",
)
def test_patches(
    survey: SurveyAnswers, roots: Roots, declared_instances: tuple[Instance, ...], environment: Environment
) -> None:
    if not environment.patches:
        pytest.skip("it has no patches")
    found, wanted_ = survey.read(PATCHED), patched_file_digests(roots, environment)
    cure = describe_env_reinstall(roots, environment)
    for path, digest in wanted_.items():
        expect(f"{path}: {found.files[path].digest or 'nothing'}", f"{path}: {digest}", cure)
    stale = [f"{path}: {name}" for path in wanted_ for name in found.files[path].stale]
    expect(ItemText.from_items(stale, shown=SHOWN), "no bytecode of another file", cure, holds=not stale)
    instead = [f"{path}: {name}" for path in wanted_ for name in found.files[path].shadowed]
    expect(ItemText.from_items(instead, shown=SHOWN), "no file that shadows it", cure, holds=not instead)
    written = max(found.files[path].written for path in wanted_)
    units = [one.unit for one in declared_instances if one.installed_as == environment.name]
    early = [
        f"process {one.pid} of {unit}" for unit in units for one in found.units[unit] if one.begun < written - CLOCK
    ]
    cure = restart_units(*units)
    other = [
        f"process {one.pid} of {unit}: {what}" for unit in units for one in found.units[unit] for what in one.elsewhere
    ]
    if other:
        strays = [unit for unit in units if any(one.elsewhere for one in found.units[unit])]
        remedy = instruction("remove that") + cure
        shown = ItemText.from_items(other, shown=SHOWN)
        report_drift(Drift("imports only from the environment", shown, remedy, restarts=strays))
    if early:
        stale_units = [unit for unit in units if any(one.begun < written - CLOCK for one in found.units[unit])]
        shown = ItemText.from_items(early, shown=SHOWN)
        report_drift(Drift("processes started later", shown, cure, restarts=stale_units))


def describe_env_reinstall(roots: Roots, environment: Environment) -> Remedy:
    """A folder with its marker is never installed again by itself."""
    return remove_paths(roots.installation_path(environment.folder)) + DEPLOY


def _package(described: str) -> str:
    """`name==version` of a distribution's folder, name as an index spells it; or what a conda record is of; else what
    no locked package is described by.
    """
    if described.endswith(".json"):
        return described.removesuffix(".json")
    if not described.endswith(".dist-info"):
        return described
    name, _, version = described.removesuffix(".dist-info").rpartition("-")
    return f"{canonicalize_name(name)}=={version}"
