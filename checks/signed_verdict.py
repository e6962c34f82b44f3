"""The details of a signed verdict: the box, the checking programs, every result, and its limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from checks import Drift
from checks.check_catalogue import UnknownCheck, list_checks, list_user_checks
from checks.nvidia_smi import parse_smi_answer
from checks.pytest_frame import ChecksPlugin
from checks.results import HostReport, Result
from checks.runner import OWN
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import ABOUT
from checks.survey.serving import GENERATIONS
from checks.survey.survey_program import digest_survey_code
from checks.survey_run import SurveyedHost
from checks.verdict_verifier import DETAILS_TYPE, RESULTS, TIME_FORM
from rigwright.declaration.connection import HostKey
from rigwright.nvidia.cards.smi import those_that_answer
from rigwright.project_root import ROOT

VALIDITY = timedelta(days=7)
JUDGING = ("checks", "rigwright", "roles", "templates", "catalog")
"""Folders of the code that judges the answers of hosts. It runs on the controller."""
SUFFIXES = (".py", ".j2", ".lua", ".toml", ".txt", ".json")
CONFORMS, WAIVED, RED = RESULTS


@dataclass(frozen=True)
class VerdictLink:
    """The place of a verdict in the chain of its box."""

    sequence: int
    previous: str | None
    """SHA-256 of the details before it; None for the first one."""


def build_details(
    frame: ChecksPlugin, report: HostReport, link: VerdictLink, controller_key: str, nonce: str | None
) -> dict[str, Any]:
    """The details of a verdict about a host that was reached.

    Args:
        frame: The complete run of all checks.
        report: Its report about the host.
        link: The place in the chain.
        controller_key: The fingerprint of the key that signs.
        nonce: The challenge in hexadecimal digits; None without one.

    Raises:
        ValueError: the host has not answered enough to be identified.
    """
    seen = frame.look.hosts[report.name]
    survey = seen.survey or SurveyAnswers({})
    signed = datetime.now(timezone.utc).replace(microsecond=0)
    inventory = Path(frame.look.inventory)
    rows = [_describe_result(one) for one in report.checks]
    return {
        "schema": DETAILS_TYPE,
        "subject": _identify_box(seen, survey, report),
        "verifier": {
            "rigwright": metadata.version("rigwright"),
            "host_program": survey.program,
            "host_code": digest_survey_code(),
            "judging_code": digest_judging_code(inventory.absolute().parent / OWN),
            "controller_key": controller_key,
        },
        "time": {
            "surveyed": _format_time(datetime.fromtimestamp(frame.look.began, timezone.utc)),
            "host_clock": report.clock,
            "signed": _format_time(signed),
            "expires": _format_time(signed + VALIDITY),
        },
        "chain": {"sequence": link.sequence, "previous": link.previous},
        "nonce": nonce,
        "deep": frame.look.deep,
        "result": find_result(rows),
        "checks": rows,
        "cannot_see": _list_limitations({one.id for one in report.checks}, inventory),
        "could_falsify": _list_parties(controller_key, cards=bool(seen.rig.cards)),
    }


def find_result(rows: Iterable[dict[str, Any]]) -> str:
    """The result of all checks."""
    verdicts = {"red" if one["verdict"] == "fail" or one["changes"] else one["verdict"] for one in rows}
    return RED if "red" in verdicts else WAIVED if "waived" in verdicts else CONFORMS


def _format_time(moment: datetime) -> str:
    return moment.strftime(TIME_FORM)


def _describe_result(one: Result) -> dict[str, Any]:
    names = ("id", "part", "title", "severity", "verdict", "note", "expected", "found", "since")
    waivers = [vars(waiver) for waiver in one.waivers]
    more = {"observed": [*one.observed], "waivers": waivers, "changes": sum(row.counts for row in one.changes)}
    return {name: getattr(one, name) for name in names} | more


def _identify_box(seen: SurveyedHost, survey: SurveyAnswers, report: HostReport) -> dict[str, Any]:
    try:
        machine = survey.read(ABOUT).machine
        found = survey.read(GENERATIONS)
        shown = seen.target.connector.client.get_transport().get_remote_server_key()
        key = HostKey(shown.get_name(), shown.asbytes()).fingerprint
    except (Drift, AttributeError) as error:
        raise ValueError(f"the host cannot be identified: {error}") from None
    sealed = {kept.number: kept.sealed for kept in found.kept}.get(report.generation or 0, "")
    return {
        "name": report.name,
        "host_key": key,
        "machine": machine,
        "cards": _list_cards(seen, survey),
        "lock": report.lock,
        "generation": {"number": report.generation, "sha256": sealed},
    }


def _list_cards(seen: SurveyedHost, survey: SurveyAnswers) -> list[str] | None:
    """The UUIDs of the cards that answer; None where nvidia-smi does not."""
    if not seen.rig.cards:
        return []
    with suppress(Drift, ValueError):
        gpus, _ = parse_smi_answer(survey, "gpus", those_that_answer)
        return sorted(gpu.uuid for gpu in gpus)
    return None


@cache
def digest_judging_code(own: Path) -> str:
    """SHA-256 of the files that judge the answers of hosts: Rigwright's, and the operator's own checks."""
    folders = [*((name, ROOT / name) for name in JUDGING), ("own", own)]
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}/{path.relative_to(folder)}\n"
        for name, folder in folders
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES and path.is_file()
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _list_limitations(ids: set[str], inventory: Path) -> dict[str, list[str]]:
    """Check -> its limits, of those that have some."""
    known = list_checks()
    with suppress(UnknownCheck):
        known += list_user_checks(inventory)
    return {one.id: one.limitations for one in known if one.id in ids and one.limitations}


def _list_parties(controller_key: str, *, cards: bool) -> Sequence[str]:
    return [
        "root on the host, its kernel, firmware and hypervisor: every answer, the machine id, UUIDs of cards and the "
        "clock",
        *(["the driver and the firmware of the cards: names, UUIDs and states of cards"] if cards else []),
        "an operator of the controller: the inventory, accepted entries, waivers, own checks and the checking programs",
        f"a holder of the key {controller_key}: every line of this file",
        "a thief of the host's SSH key who also controls its network address: all of the host's answers",
    ]
