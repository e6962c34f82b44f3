"""Sandboxes of instances, tried from inside: as the instance's user, in a unit with all that its own unit forbids."""

from __future__ import annotations

import pytest

from checks import DEPLOY, check
from checks.drift_text import expect_none
from checks.service_processes import CONTAINED
from checks.survey.answers import SurveyAnswers
from checks.survey.processes import ESCAPES, EscapeResult
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.model.instance import Instance


@pytest.fixture(scope="session")
def done(survey: SurveyAnswers, instance: Instance, service: ServiceSpec) -> EscapeResult:
    """The successful attempts to leave an instance's sandbox, by kind of attempt."""
    if service.container:
        pytest.skip(CONTAINED)
    return survey.read(ESCAPES)[instance.unit]


@check(
    "E01",
    "the instance reaches no other process",
    severity="critical",
    why="a compromised service compromises its neighbours",
)
def test_processes(done: EscapeResult) -> None:
    expect_none(done.processes, "no reachable process", DEPLOY)


@check(
    "E02",
    "the instance reaches only its own socket",
    severity="critical",
    why="a compromised service could send out its clients' requests",
)
def test_network(done: EscapeResult) -> None:
    expect_none(done.network, "nothing reachable", DEPLOY)


@check(
    "E03",
    "the instance reads no secret, holds no lock and writes no foreign file",
    severity="critical",
    why="a compromised service could survive its restart, or block deploys",
)
def test_files(done: EscapeResult) -> None:
    expect_none(done.files, "no reachable files of others", DEPLOY)


@check(
    "E04",
    "the instance opens no device but cards",
    severity="critical",
    why="device files give access to disks and memory without file permissions",
)
def test_devices(done: EscapeResult) -> None:
    expect_none(done.devices, "no reachable device", DEPLOY)


@check(
    "E05",
    "the instance cannot gain privileges",
    severity="critical",
    why="a process with privileges can exploit the kernel and control the box",
)
def test_privileges(done: EscapeResult) -> None:
    expect_none(done.privileges, "no privileges to gain", DEPLOY)
