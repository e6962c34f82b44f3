"""Monitoring: it runs as declared, answers only those that may ask, and hears of every box."""

import json

import pytest

from checks import DEPLOY, ItemText, check, expect
from checks.drift_text import format_first_lines
from checks.remedy import STOP_LISTENER, instruction, restart_units, show_log
from checks.service_processes import expect_started_from
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import GATES
from checks.survey.requests import HEARD, REQUESTS, find_answer
from checks.survey.service_exposure import REACH
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.monitoring_schema import Monitoring, ScrapeTarget
from rigwright.model.roots import Roots
from rigwright.monitoring.monitoring_units import (
    PACKAGED_PROGRAMS,
    MonitoringService,
    render_targets,
    secrets_by_path,
    unit_name,
)

EXPOSURE = 2.0  # budget of each unit, `systemd-analyze security`: 0 is nothing exposed, 10 everything


@check("Q01", "monitoring runs, now and after a reboot", severity="high", why="no alert is sent")
def test_active_and_enabled(survey: SurveyAnswers, watching: MonitoringService) -> None:
    one = survey.read(GATES).unit_state(watching.unit_name)
    name = watching.unit_name
    expect(f"{name} {one.active}, {one.enabled}", f"{name} active, enabled", DEPLOY + show_log(name))


@check(
    "Q02",
    "monitoring was started from the declared settings",
    severity="high",
    why="alerts changed by hand or by an interrupted run are not sent",
)
def test_process_is_current(
    survey: SurveyAnswers,
    inventory_file: str,
    roots: Roots,
    monitoring_entry: Monitoring | None,
    watching: MonitoringService,
) -> None:
    one = survey.read(GATES).unit_state(watching.unit_name)
    wanted = watching.digest(secrets_by_path(inventory_file, roots, monitoring_entry))
    expect_started_from(watching.unit_name, one.started_from if one.active == "active" else "", wanted)
    restart = restart_units(watching.unit_name)
    expect(ItemText.without_value("another program") if one.replaced else "the same", "the same", restart)


@check(
    "Q03",
    "monitoring's exposure level is within budget",
    severity="high",
    why="a program that reads all boxes gives access to all boxes",
)
def test_exposure(survey: SurveyAnswers, watching: MonitoringService) -> None:
    level = survey.read(GATES).unit_state(watching.unit_name).exposure or "10"
    expect(level, f"at most {EXPOSURE}", DEPLOY, holds=float(level) <= EXPOSURE)


@check(
    "Q04",
    "monitoring listens only on the declared address and port",
    severity="critical",
    why="only the declared readers may use metrics, silences and probes",
)
def test_listens_where_it_is_declared(survey: SurveyAnswers, watching: MonitoringService) -> None:
    listeners, unit = survey.read(REACH).listeners, watching.unit_name
    own = {one.at for one in listeners if any(name.endswith(f" of {unit}") for name in one.holders)}
    expect(format_first_lines(sorted(own)) or "nothing", watching.endpoint, restart_units(unit) + DEPLOY)
    port = watching.at[1]
    others = {name for one in listeners if one.port == port for name in one.holders if not name.endswith(f" of {unit}")}
    expect(format_first_lines(sorted(others)) or "no other", "no other", STOP_LISTENER + DEPLOY)


@check(
    "Q05",
    "Prometheus scrapes the inventory's boxes and their instances",
    severity="high",
    why="no alert reports the loss of a box that is not scraped",
)
def test_asks_all(survey: SurveyAnswers, roots: Roots, scrape_targets: tuple[ScrapeTarget, ...]) -> None:
    wanted = render_targets(roots, scrape_targets)
    if not wanted:
        pytest.skip("it has no scrape targets")
    there = survey.read(GATES).files
    other = [path for path, text in wanted.items() if there.get(path) != text]
    expect(format_first_lines(other) or "as declared", "as declared", DEPLOY)


@check(
    "Q06",
    "every scrape target answers",
    severity="high",
    why="a target without an answer, or its exporter, is down",
)
def test_hears_of_all(survey: SurveyAnswers, scrape_targets: tuple[ScrapeTarget, ...]) -> None:
    if not scrape_targets:
        pytest.skip("it has no scrape targets")
    said = find_answer(survey.read(REQUESTS), HEARD)
    try:
        rows = [one["metric"] for one in json.loads(said.body)["data"]["result"]]
        silent = sorted({f"{one.get('job')} of {one.get('box') or one.get('instance')}" for one in rows})
    except (ValueError, KeyError, TypeError, AttributeError):
        silent = [f"an answer of {said.describe}"]
    expect(
        format_first_lines(silent) or "all of them",
        "all of them",
        instruction("find out why that box, or unit, does not answer"),
    )


@check(
    "Q07",
    "no monitoring runs that the rig does not declare",
    severity="high",
    why="undeclared programs are not maintained",
)
def test_nothing_undeclared(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    declared_cards: tuple[Card, ...],
    monitoring_entry: Monitoring | None,
) -> None:
    gates = survey.read(GATES)
    there = []
    for name in PACKAGED_PROGRAMS:
        one = gates.unit_state(unit_name(name))
        # of one that is not there systemd has no words
        if name not in service_accounts.exporters(monitoring_entry, cards=bool(declared_cards)) and (
            one.enabled or one.active != "inactive"
        ):
            there.append(f"{unit_name(name)} {one.active}")
    expect(format_first_lines(there) or "nothing", "nothing", DEPLOY)
