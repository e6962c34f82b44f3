"""The reports of `check --arf`: results of each host in NIST's Asset Reporting Format 1.1 with XCCDF 1.2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

from checks.results import HostReport, Report, Result
from cli.ctrf_report import describe_result
from cli.output_file import make_output_folder, write_output

SPACES = {
    "arf": "http://scap.nist.gov/schema/asset-reporting-format/1.1",
    "core": "http://scap.nist.gov/schema/reporting-core/1.1",
    "ai": "http://scap.nist.gov/schema/asset-identification/1.1",
    "ds": "http://scap.nist.gov/schema/scap/source/1.2",
    "xlink": "http://www.w3.org/1999/xlink",
    "xccdf": "http://checklists.nist.gov/xccdf/1.2",
}
VOCABULARY = "http://scap.nist.gov/specifications/arf/vocabulary/relationships/1.0#"
BENCHMARK = "xccdf_org.rigwright_benchmark_checks"
REACHED = "reached"
"""The rule that a host is reached."""
RESULTS: Mapping[str, str] = {
    "ok": "pass",
    "fail": "fail",
    "changed": "fail",
    "skip": "notapplicable",
    "waived": "informational",
}
"""Verdict -> XCCDF result. A change that only counts with `--strict` is `informational`."""
WORST_FIRST = ("fail", "unknown", "informational", "pass", "notapplicable")
SEVERITIES: Mapping[str, str] = {"critical": "high", "high": "medium", "low": "low"}
SUFFIX = ".arf.xml"
# XML 1.0 has no other characters (2.2)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_arf_reports(folder: Path, report: Report) -> None:
    """Write HOST.arf.xml of each host: importers read the first result of a file.

    Raises:
        NotAsDeclared: the folder or a file cannot be written.
    """
    make_output_folder(folder)
    rules = collect_rules(report)
    for host in report.hosts:
        write_output(folder / f"{host.name}{SUFFIX}", render_arf(report, host, rules))


def collect_rules(report: Report) -> dict[str, Result]:
    """Check -> one of its results, of all hosts: the rules of the benchmark."""
    found = {one.id: one for host in report.hosts for one in host.checks}
    return dict(sorted(found.items()))


def render_arf(report: Report, host: HostReport, rules: Mapping[str, Result]) -> str:
    """The report of one host.

    Args:
        report: All hosts.
        host: The host.
        rules: The benchmark's.
    """
    for prefix, space in SPACES.items():
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.Element(_tag("arf:asset-report-collection"))
    relations = _add(root, "core:relationships", {"xmlns:arfvocab": VOCABULARY})
    for kind, target in (("createdFor", "request"), ("isAbout", "host")):
        relation = _add(relations, "core:relationship", {"type": f"arfvocab:{kind}", "subject": "result"})
        _add(relation, "core:ref", text=target)
    request = _add(_add(root, "arf:report-requests"), "arf:report-request", {"id": "request"})
    _add_benchmark(_add(request, "arf:content"), report, rules)
    asset = _add(_add(root, "arf:assets"), "arf:asset", {"id": "host"})
    device = _add(asset, "ai:computing-device")
    _add(device, "ai:hostname", text=host.name)
    content = _add(_add(_add(root, "arf:reports"), "arf:report", {"id": "result"}), "arf:content")
    _add_test_result(content, report, host, rules)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _tag(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"{{{SPACES[prefix]}}}{local}"


def _add(
    parent: ElementTree.Element, name: str, attributes: Mapping[str, str] | None = None, text: str = ""
) -> ElementTree.Element:
    values = {
        _tag(key) if key.partition(":")[0] in SPACES else key: _FORBIDDEN.sub("\ufffd", value)
        for key, value in (attributes or {}).items()
    }
    made = ElementTree.SubElement(parent, _tag(name), values)
    made.text = _FORBIDDEN.sub("\ufffd", text) or None
    return made


def _rule_id(identifier: str) -> str:
    return f"xccdf_org.rigwright_rule_{re.sub('[^A-Za-z0-9_.-]', '_', identifier)}"


def _add_benchmark(parent: ElementTree.Element, report: Report, rules: Mapping[str, Result]) -> None:
    """The checks as a benchmark, in a data stream as scanners have it."""
    collection = _add(
        parent, "ds:data-stream-collection", {"id": "scap_org.rigwright_collection_checks", "schematron-version": "1.2"}
    )
    stream = _add(
        collection,
        "ds:data-stream",
        {"id": "scap_org.rigwright_datastream_checks", "scap-version": "1.2", "use-case": "OTHER"},
    )
    reference = {"id": "scap_org.rigwright_cref_checks", "xlink:href": "#scap_org.rigwright_comp_checks"}
    _add(_add(stream, "ds:checklists"), "ds:component-ref", reference)
    component = _add(collection, "ds:component", {"id": "scap_org.rigwright_comp_checks", "timestamp": report.as_of})
    benchmark = _add(component, "xccdf:Benchmark", {"id": BENCHMARK})
    _add(benchmark, "xccdf:status", text="accepted")
    _add(benchmark, "xccdf:title", text="Rigwright's checks of a GPU inference box")
    _add(benchmark, "xccdf:description", text="The state of a host compared with its inventory and lock.")
    _add(benchmark, "xccdf:version", text=report.rigwright)
    _add_rule(benchmark, REACHED, "the host is reached", "critical", "an unreached host is not verified")
    for identifier, one in rules.items():
        _add_rule(benchmark, identifier, one.title, one.severity, one.why)


def _add_rule(benchmark: ElementTree.Element, identifier: str, title: str, severity: str, why: str) -> None:
    rule = _add(
        benchmark,
        "xccdf:Rule",
        {"id": _rule_id(identifier), "severity": SEVERITIES[severity], "selected": "true"},
    )
    _add(rule, "xccdf:title", text=title if identifier == REACHED else f"{identifier} {title}")
    _add(rule, "xccdf:rationale", text=why)


def _add_test_result(
    parent: ElementTree.Element, report: Report, host: HostReport, rules: Mapping[str, Result]
) -> None:
    start = datetime.strptime(report.as_of, "%Y-%m-%dT%H:%M:%SZ")
    end = (start + timedelta(seconds=report.took_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = _add(
        parent,
        "xccdf:TestResult",
        {
            "id": f"xccdf_org.rigwright_testresult_{host.name}",
            "start-time": report.as_of,
            "end-time": end,
            "version": report.rigwright,
            "test-system": "cpe:/a:rigwright:rigwright",
        },
    )
    _add(made, "xccdf:benchmark", {"href": "#scap_org.rigwright_comp_checks", "id": BENCHMARK})
    _add(made, "xccdf:title", text=f"rigwright check of {host.name}: {host.verdict}")
    _add(made, "xccdf:target", text=host.name)
    facts = {"lock": host.lock, "generation": str(host.generation or ""), "clock": host.clock, **host.versions}
    listed = _add(made, "xccdf:target-facts")
    for name, value in facts.items():
        if value:
            key = re.sub("[^A-Za-z0-9_.-]", "_", name)
            _add(listed, "xccdf:fact", {"name": f"urn:rigwright:fact:{key}", "type": "string"}, value)
    is_reached = host.verdict != "not reached"
    by_check: dict[str, list[Result]] = {}
    for one in host.checks:
        by_check.setdefault(one.id, []).append(one)
    outcomes = [_add_rule_result(made, report, REACHED, "critical", "pass" if is_reached else "unknown", ())]
    for identifier, rule in rules.items():
        results = by_check.get(identifier, [])
        outcome = min(
            map(convert_result, results), key=WORST_FIRST.index, default="notchecked" if is_reached else "unknown"
        )
        outcomes.append(_add_rule_result(made, report, identifier, rule.severity, outcome, results))
    counted = [one for one in outcomes if one in ("pass", "fail", "unknown")]
    score = 100 * counted.count("pass") / len(counted)
    _add(made, "xccdf:score", {"system": "urn:xccdf:scoring:default", "maximum": "100"}, f"{score:.2f}")


def convert_result(one: Result) -> str:
    """The XCCDF result of a check of one part of a host."""
    return "informational" if one.is_listed else RESULTS[one.verdict]


def _add_rule_result(
    parent: ElementTree.Element,
    report: Report,
    identifier: str,
    severity: str,
    outcome: str,
    results: Iterable[Result],
) -> str:
    """The result of a rule, the worst of all parts of the host, with a message for each; returns it."""
    made = _add(
        parent,
        "xccdf:rule-result",
        {"idref": _rule_id(identifier), "time": report.as_of, "severity": SEVERITIES[severity], "weight": "1.0"},
    )
    _add(made, "xccdf:result", text=outcome)
    for one in results:
        if text := describe_result(one):
            part = f"{one.part}: " if one.part else ""
            level = "error" if convert_result(one) == "fail" else "info"
            _add(made, "xccdf:message", {"severity": level}, f"{part}{one.verdict}: {text}")
    return outcome
