"""Common parts of the checks of containers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from checks import DEPLOY, Drift
from checks.remedy import instruction, restart_units, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.containers import CONTAINERS, DockerDaemon
from rigwright.apt_transactions import SourceFile
from rigwright.containers.container_facts import ContainerFacts
from rigwright.containers.container_plan import ContainerPlan, ContainerRefusal, plan_containers
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.rig import Rig

RESTART = instruction("stop your containers") + restart_units("docker.service")


def skip_without_docker(containers: ContainersEntry | None) -> None:
    """Leave out what only Docker can be asked."""
    if containers and "docker" not in containers.engines:
        pytest.skip("Docker is not declared")


def skip_without_container_cards(cards: tuple[Card, ...]) -> None:
    """Leave out what only containers with cards can be asked."""
    if not cards:
        pytest.skip("the rig declares no cards")


def container_facts(survey: SurveyAnswers) -> ContainerFacts:
    """The host's facts for the choice of packages; the target of a daemon is not asked here."""
    seen = survey.read(CONTAINERS)
    return ContainerFacts(
        os_id=seen.os_id,
        os_version=seen.os_version,
        packages=seen.packages.versions,
        candidates=MappingProxyType({one[0]: one[1] for one in seen.candidates}),
        half=seen.packages.half,
        held=frozenset(seen.packages.held),
        sources=tuple(SourceFile(path, text) for path, text in seen.sources),
    )


def installed_packages(survey: SurveyAnswers) -> Mapping[str, str]:
    """Package -> the version that is installed."""
    return survey.read(CONTAINERS).packages.versions


def expected_container_plan(survey: SurveyAnswers, rig: Rig) -> ContainerPlan:
    """The target state of the rig's containers on the host.

    Raises:
        Drift: they cannot be.
    """
    found = plan_containers(
        rig.roots,
        rig.cards,
        rig.containers,
        rig.container_supply,
        rig.bundle,
        rig.bundle_folder,
        container_facts(survey),
    )
    if isinstance(found, ContainerRefusal):
        raise Drift(
            "containers as they are declared", "; ".join(found.reasons), instruction("resolve each of these") + DEPLOY
        )
    return found


def running_daemon(survey: SurveyAnswers) -> DockerDaemon:
    """Docker's daemon.

    Raises:
        Drift: none runs, or it says nothing.
    """
    found = survey.read(CONTAINERS).daemon
    if found is None:
        raise Drift("a running Docker daemon", "none", DEPLOY + show_log("docker.service"))
    if "ServerVersion" not in found.info:
        raise Drift("an answer from the Docker daemon", "none", RESTART)
    return found
