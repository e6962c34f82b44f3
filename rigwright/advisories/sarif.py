"""Assessments as SARIF 2.1.0: an advisory is a rule, and what it comes to on a rig is a result."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sarif_pydantic import (
    Level,
    Location,
    LogicalLocation,
    Message,
    ReportingDescriptor,
    Result,
    Run,
    Sarif,
    Tool,
    ToolDriver,
)

from rigwright.advisories.assessment import AdvisoryFinding, Assessment, State

# State -> kind and level (SARIF 2.1.0, 3.27.9 and 3.27.10: a level other than none goes with `fail` alone).
KINDS: dict[State, tuple[str, Level]] = {
    "open": ("fail", Level.ERROR),
    "unknown": ("review", Level.NONE),
    "closed": ("pass", Level.NONE),
}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_sarif(assessments: Iterable[Assessment], version: str) -> str:
    """A SARIF log with one run.

    Args:
        assessments: One a rig.
        version: Rigwright's.
    """
    found = [(one.rig, finding) for one in assessments for finding in one.findings]
    rules: dict[str, ReportingDescriptor] = {}
    for _, finding in found:
        rules.setdefault(finding.advisory, _rule(finding))
    numbers = {name: number for number, name in enumerate(rules)}
    results = [_result(rig, finding, numbers[finding.advisory]) for rig, finding in found]
    driver = ToolDriver(name="rigwright", version=version, rules=list(rules.values()))
    log = Sarif(version="2.1.0", schema_uri=SCHEMA, runs=[Run(tool=Tool(driver=driver), results=results)])
    data = json.loads(log.model_dump_json(by_alias=True, exclude_none=True))
    return json.dumps(data, indent=2) + "\n"


def _rule(finding: AdvisoryFinding) -> ReportingDescriptor:
    text = finding.summary or finding.advisory
    link = finding.source if finding.source.startswith("https://") else None
    return ReportingDescriptor(
        id=finding.advisory,
        short_description=Message(text=text),
        help_uri=link,
        properties={"aliases": list(finding.aliases)},
    )


def _result(rig: str, finding: AdvisoryFinding, rule: int) -> Result:
    kind, level = KINDS[finding.state]
    ways = "; ".join(f"{one.path}: {one.state}: {one.reason}" if one.path else one.reason for one in finding.paths)
    name = f"{rig}/{finding.component}"
    return Result(
        rule_id=finding.advisory,
        rule_index=rule,
        kind=kind,
        level=level,
        message=Message(text=f"{finding.component} {finding.version} in {finding.place}: {finding.state}. {ways}"),
        locations=[Location(logical_locations=[LogicalLocation(fully_qualified_name=name, kind="module")])],
        partial_fingerprints={"rigwright/v1": f"{rig}/{finding.component}/{finding.place}/{finding.advisory}"},
        properties={"rig": rig, "state": finding.state, "version": finding.version, "place": finding.place},
    )
