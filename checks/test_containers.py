"""Containers: engines that are new enough, Docker's options in force, and specs that name the cards as they are."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from checks import DEPLOY, Drift, ItemText, check
from checks.container_check_helpers import (
    installed_packages,
    running_daemon,
    skip_without_container_cards,
    skip_without_docker,
)
from checks.nvidia import expect_no_items
from checks.remedy import host_command, instruction, remove_paths
from checks.survey.answers import SurveyAnswers
from checks.survey.cards import CARDS
from checks.survey.containers import CONTAINERS
from rigwright.containers import daemon_json
from rigwright.containers.container_facts import CDI_SPEC, REFRESH_PATH, REFRESH_UNIT, store_folder
from rigwright.containers.container_files import spec_program_path
from rigwright.containers.daemon_json import UnreadableDaemonConfig
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.deb_package_groups import leading_numbers, upstream_version
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.smi import those_that_answer

KIND = "nvidia.com/gpu"
DRIVER = re.compile(r"(?:\.so\.|/firmware/nvidia/)([0-9]{3}\.[0-9.]*[0-9])")
PACKAGES = {"docker": ("docker-ce", "docker.io"), "podman": ("podman",)}
# A daemon's names for its effective options (docs.docker.com/reference/api/engine, GET /info)
CALLED = {
    "log-driver": "LoggingDriver",
    "data-root": "DockerRootDir",
    "live-restore": "LiveRestoreEnabled",
    "debug": "Debug",
    "storage-driver": "Driver",
    "labels": "Labels",
}
# Addresses may have a user and his password in them.
USER = re.compile(r"(?<=://)[^/@\s\"]+(?=@)")


@check(
    "C01",
    "container engines are new enough for CDI",
    severity="high",
    why="older versions ignore CDI specs, and their containers start without cards",
)
def test_engines(
    survey: SurveyAnswers,
    containers_entry: ContainersEntry | None,
    container_supply: ContainerSupply,
    containers: object,
) -> None:
    there = installed_packages(survey)
    wrong = []
    for engine in containers_entry.engines if containers_entry else ():
        least = container_supply.tables.minimum_version(engine)
        name = next((one for one in PACKAGES[engine] if one in there), "")
        if not name:
            wrong.append(f"no {engine}")
        elif leading_numbers(there[name]) < leading_numbers(least):
            wrong.append(f"{name} {upstream_version(there[name])}, but {least} or newer is required")
        elif engine == "docker" and (said := _version(survey)) and leading_numbers(said) < leading_numbers(least):
            wrong.append(f"the running daemon is Docker {said}, but {least} or newer is required")
    expect_no_items("every declared engine", wrong, DEPLOY)


def _version(survey: SurveyAnswers) -> str:
    """The version of Docker's daemon, which may be another than its package's; empty where there is none."""
    found = survey.read(CONTAINERS).daemon
    return str(json.loads(found.info.get("ServerVersion", '""'))) if found else ""


@check(
    "C02",
    "Docker's daemon.json has the declared options",
    severity="high",
    why="missing options are lost at the daemon's next start, and containers that need cards with them",
)
def test_options(
    survey: SurveyAnswers,
    roots: Roots,
    declared_cards: tuple[Card, ...],
    containers_entry: ContainersEntry | None,
    containers: object,
) -> None:
    skip_without_docker(containers_entry)
    wanted = daemon_json.required_options(declared_cards, containers_entry)
    if not wanted:
        pytest.skip("no options are declared")
    seen = survey.read(CONTAINERS)
    if seen.record and daemon_json.parse_record(seen.record) is None:
        cure = remove_paths(f"{store_folder(roots)}/daemon.json")
        raise Drift(f"{store_folder(roots)}/daemon.json, which lists the managed options", "an unreadable one", cure)
    try:
        there = daemon_json.parse_options(seen.options)
    except UnreadableDaemonConfig as error:
        raise Drift(f"options in {daemon_json.PATH}", str(error), instruction("correct that file") + DEPLOY) from None
    wrong = [f"{'.'.join(path)} is {USER.sub('...', json.dumps(found))}" for path, found in _other(wanted, there)]
    expect_no_items("each option as declared", wrong, DEPLOY)


def _other(wanted: dict[str, Any], there: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in wanted.items():
        found = there.get(name) if isinstance(there, dict) else None
        if isinstance(value, dict) and value:
            yield from _other(value, found, (*above, name))
        elif found != value:
            yield (*above, name), found


@check(
    "C03",
    "the Docker daemon runs with the declared options",
    severity="high",
    why="options written after the daemon's start take effect at its next start, which may come at a bad time",
    blind="options that the daemon does not report: GET /info lists some of them",
)
def test_in_force(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    containers_entry: ContainersEntry | None,
    containers: object,
) -> None:
    skip_without_docker(containers_entry)
    seen, wanted, wrong = running_daemon(survey), daemon_json.required_options(declared_cards, containers_entry), []
    said = {name: json.loads(text) for name, text in seen.info.items()}
    for option, called in CALLED.items():
        if option in wanted and not _means(option, wanted[option], said.get(called)):
            wrong.append(f"{option} is {json.dumps(said.get(called))}")
    if declared_cards:
        runtimes = said.get("Runtimes")
        runtime = runtimes.get("nvidia") if isinstance(runtimes, dict) else None
        path = wanted["runtimes"]["nvidia"]["path"]
        if not isinstance(runtime, dict):
            wrong.append("it has no nvidia runtime")
        elif runtime.get("path") != path:
            wrong.append(f"its nvidia runtime is {json.dumps(runtime.get('path'))}")
        folders = said.get("CDISpecDirs") or []
        if not {"/run/cdi", "/var/run/cdi"} & set(map(str, folders)):
            wrong.append("it does not read CDI specs")
    expect_no_items("each option as declared", wrong, DEPLOY)


def _means(option: str, wanted: Any, said: Any) -> bool:
    """Whether what a daemon says is what an option asks for; below its data each range of users has a folder."""
    if option == "data-root" and isinstance(said, str):
        return f"{said}/".startswith(f"{str(wanted).rstrip('/')}/")
    return bool(said == wanted)


@check(
    "C05",
    "the CDI spec matches the cards and the driver",
    severity="critical",
    why="a spec of the previous driver names deleted libraries: no container with cards starts",
)
def test_spec(survey: SurveyAnswers, declared_cards: tuple[Card, ...], containers: object) -> None:
    skip_without_container_cards(declared_cards)
    seen = survey.read(CONTAINERS)
    spec = next((one for one in seen.specs if one.path == CDI_SPEC), None)
    if spec is None or spec.kind != KIND:
        raise Drift(f"a CDI spec of {KIND} at {CDI_SPEC}", spec.kind if spec and spec.kind else "none", DEPLOY)
    wrong = [f"{path} is not there" for path in spec.missing]
    wrong += [
        f"{path} has version {found[1]}, the loaded driver {seen.loaded or 'none'}"
        for path in spec.paths
        if (found := DRIVER.search(path)) and found[1] != seen.loaded
    ]
    if not any(DRIVER.search(path) for path in spec.paths):
        wrong.append("it names no driver files")
    said = survey.read(CARDS).answers["gpus"]
    cards, _ = those_that_answer(said.status, said.out)
    wrong += [f"it has no card {card.uuid}" for card in cards if card.uuid not in spec.names]
    wrong += ["it has no device 'all'"] if "all" not in spec.names else []
    expect_no_items("all cards and all files of the loaded driver", wrong, DEPLOY)


@check(
    "C06",
    "no other CDI spec describes the cards",
    severity="high",
    why="of two specs the older one wins or neither does, and a handwritten one does not follow the driver",
)
def test_one_spec(survey: SurveyAnswers, declared_cards: tuple[Card, ...], containers: object) -> None:
    skip_without_container_cards(declared_cards)
    others = [
        one.path for one in survey.read(CONTAINERS).specs if one.path != CDI_SPEC and one.kind.startswith("nvidia.com/")
    ]
    expect_no_items(f"{CDI_SPEC} alone", others, remove_paths(*others))


@check(
    "C07",
    "the CDI spec is regenerated at boot and after each driver change",
    severity="high",
    why="a spec that is not regenerated describes the previous driver after the next upgrade or boot",
)
def test_units(survey: SurveyAnswers, roots: Roots, declared_cards: tuple[Card, ...], containers: object) -> None:
    skip_without_container_cards(declared_cards)
    seen = survey.read(CONTAINERS).units
    wrong = []
    for unit in (REFRESH_UNIT, REFRESH_PATH):
        row = seen.get(unit, {})
        state = row.get("UnitFileState") or "not there"
        if state != "enabled":
            wrong.append(f"{unit} is {state}")
        if row.get("ActiveState") == "failed":
            wrong.append(f"{unit} has failed ({row.get('Result')})")
        if row.get("NeedDaemonReload") == "yes":
            wrong.append(f"systemd has not reloaded {unit}")
    if seen.get(REFRESH_PATH, {}).get("ActiveState") not in ("active", None):
        wrong.append(f"{REFRESH_PATH} is not watching")
    runs = seen.get(REFRESH_UNIT, {}).get("ExecStart", "")
    if f"argv[]=/bin/sh {spec_program_path(roots)} ;" not in runs or runs.count("argv[]=") != 1:
        shown = f"{REFRESH_UNIT} runs another program"
        wrong.append(ItemText(shown, f"{shown}: {runs}"))
    if seen.get(REFRESH_UNIT, {}).get("ExecCondition"):
        wrong.append(f"{REFRESH_UNIT} has an added condition")
    expect_no_items(
        "both units as deployed", wrong, host_command("systemctl revert {} {}", REFRESH_UNIT, REFRESH_PATH) + DEPLOY
    )
