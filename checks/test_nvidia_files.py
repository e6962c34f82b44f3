"""The driver's files: as its packages brought them, found before others, and kept for the way back."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from checks import DEPLOY, check
from checks.nvidia import collect_driver_facts, expect_no_items, skip_unless_managed, skip_without_cards
from checks.remedy import (
    Remedy,
    host_command,
    instruction,
    reinstall_packages,
    remove_diversion,
    remove_override,
    remove_paths,
)
from checks.stored_packages import find_stored_package_problems
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SETTINGS
from checks.survey.kernel import KERNEL
from checks.survey.packages import FILES, PACKAGES, PackageFileFinding
from rigwright.containers import container_files
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_setting_files import managed_paths, program_folder, render_card_settings
from rigwright.nvidia.driver.driver_facts import OF_A_DRIVER
from rigwright.nvidia.driver.driver_files import PREFERENCES, store_folder
from rigwright.nvidia.packages.locked_driver import find_locked_driver

UNPACKAGED = "was not brought by the package"
"""The survey's words of a file among a package's."""


def of_the_driver(name: str) -> bool:
    """Whether a package is one of a driver's."""
    return any(fnmatchcase(name, pattern) for pattern in OF_A_DRIVER)


def describe_findings(findings: list[PackageFileFinding]) -> list[str]:
    """The problems of files."""
    return [f"{one.path} {one.what}" for one in findings]


def describe_reinstall(findings: list[PackageFileFinding], roots: Roots, driver_entry: DriverEntry) -> Remedy:
    """The command that brings packages' files again."""
    names = sorted({one.package for one in findings})[:5]
    if driver_entry.managed and all(map(of_the_driver, names)):
        # of the sets that are stored, the one of the installed version
        again = host_command(
            "for name in {}; do version=$(dpkg-query -W -f '${{Version}}' $name); "
            "dpkg -i --force-confnew,confmiss {}/*/${{name}}_${{version#*:}}_*.deb; done",
            names,
            store_folder(roots),
        )
        again += DEPLOY
    else:
        again = reinstall_packages(*names)
    extra = [one.path for one in findings if one.what == UNPACKAGED]
    return remove_paths(*extra) + again if extra else again


@check(
    "N29",
    "the driver's programs and libraries are as packaged",
    severity="critical",
    why="every program that uses a card loads them, and root runs some of them at each boot",
)
def test_files(
    survey: SurveyAnswers, roots: Roots, declared_cards: tuple[Card, ...], driver_entry: DriverEntry
) -> None:
    """Files whose inodes have not changed since dpkg wrote its list are not read; `--deep` reads all."""
    skip_without_cards(declared_cards)
    found = [one for one in survey.read(FILES).findings if of_the_driver(one.package)]
    expect_no_items(
        "the driver's files as packaged", describe_findings(found), describe_reinstall(found, roots, driver_entry)
    )


@check(
    "N40",
    "kernel, headers, DKMS and initramfs tools are as packaged",
    severity="high",
    why="a modified kernel or header shows only at a boot or an upgrade",
)
def test_boot_files(
    survey: SurveyAnswers, roots: Roots, declared_cards: tuple[Card, ...], driver_entry: DriverEntry
) -> None:
    skip_without_cards(declared_cards)
    files = survey.read(FILES)
    found = [one for one in files.findings if one.package in files.strict and not of_the_driver(one.package)]
    expect_no_items(
        "kernels, headers, DKMS and initramfs tools as packaged",
        describe_findings(found),
        describe_reinstall(found, roots, driver_entry),
    )


@check(
    "N41",
    "no dpkg diversion or override affects the driver's files",
    severity="high",
    why="dpkg applies them at each upgrade: the driver's file goes elsewhere, and another one runs instead",
)
def test_diversions(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
    files = survey.read(FILES)
    moved = [(path, to) for path, to, package in files.moved if of_the_driver(package) or "nvidia" in path]
    wrong = [f"{path} is diverted to {to}" for path, to in moved]
    modes = [path for path in files.overridden if re.search(r"nvidia|libcuda", path)]
    wrong += [f"{path} has an overridden mode" for path in modes]
    expect_no_items(
        "no diversions or overrides of the driver's files",
        wrong,
        sum((remove_diversion(path) for path, _ in moved), sum(map(remove_override, modes), Remedy(()))),
    )


@check(
    "N42",
    "no library shadows one of the driver's",
    severity="critical",
    why="every program that uses a card loads the first library that the loader finds, also an unpackaged one",
)
def test_loader(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    kernel = survey.read(KERNEL)
    wrong = [f"{name} at {path}, not from a package" for name, path, _, package in kernel.libraries if not package]
    expect_no_items(
        "only packaged driver libraries on the loader's path",
        list(dict.fromkeys(wrong)),
        instruction("remove the directory from /etc/ld.so.conf.d, or the library from the directory")
        + host_command("ldconfig"),
    )


@check(
    "N44",
    "stored driver packages are the locked ones",
    severity="high",
    why="repairs and rollbacks use them after the archive has removed the version",
)
def test_kept(
    survey: SurveyAnswers,
    roots: Roots,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    facts: HostFacts,
) -> None:
    """A file that has not changed since its list was written is judged by its size; `--deep` reads all."""
    skip_unless_managed(declared_cards, driver_entry)
    kept = survey.read(PACKAGES).kept
    if not kept:
        pytest.skip("none are stored")
    lock = find_locked_driver(driver_supply, collect_driver_facts(survey, facts).system)
    rows = {row.sha256: row for row in lock.packages.values()} if lock else {}
    wrong = list(find_stored_package_problems(store_folder(roots), kept, rows, lock.version if lock else ""))
    expect_no_items(
        "stored packages as downloaded",
        wrong,
        # installed packages stay, and the next upgrade stores its files again
        remove_paths(*(f"{store_folder(roots)}/{one.version}" for one in kept)),
    )


@check(
    "N45",
    "no other apt preference affects the driver",
    severity="low",
    why="apt uses the first match: another driver comes with the next upgrade, once an archive has it",
)
def test_pins(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    containers_entry: ContainersEntry | None,
) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    packages = survey.read(PACKAGES)
    names = {*packages.packages.matching(OF_A_DRIVER).versions}
    # K07 has that the other one is as it is rendered: it is about the container toolkit's
    ours = (PREFERENCES, container_files.PREFERENCES) if containers_entry else (PREFERENCES,)
    wrong = []
    for pin in packages.pins:
        own = [name for one in pin.packages.split() for name in names if one != "*" and _fits(one, name)]
        if pin.path not in ours and own:
            wrong.append(f"{pin.path}: {pin.packages} {pin.pin} ({pin.priority})")
    expect_no_items(
        "no other apt preferences about the driver's packages",
        wrong,
        instruction("remove it, or declare driver.branch"),
    )


def _fits(pattern: str, name: str) -> bool:
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "/":
        try:
            return re.search(pattern[1:-1], name) is not None
        except re.error:
            return True
    return fnmatchcase(name, pattern.partition(":")[0])


@check(
    "N46",
    "the directory of the program that sets up the cards holds only its own files",
    severity="high",
    why="root runs that program at each boot: a file named like one of its modules would run instead",
)
def test_program(
    survey: SurveyAnswers, roots: Roots, declared_cards: tuple[Card, ...], driver_entry: DriverEntry
) -> None:
    if not driver_entry.sets_cards:
        pytest.skip("no card settings are declared")
    known = {one.path for one in render_card_settings(roots, declared_cards, driver_entry)} | set(managed_paths(roots))
    folder = f"{program_folder(roots)}/"
    extra = {
        one.path: f"{one.path} ({one.kind})"
        for one in survey.read(SETTINGS).files
        if one.path.startswith(folder) and one.path not in known
    }
    expect_no_items(f"only Rigwright's files in {program_folder(roots)}", [*extra.values()], remove_paths(*extra))
