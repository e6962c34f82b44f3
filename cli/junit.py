"""JUnit XML, as continuous integration reads it, of what verbs have judged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# what XML 1.0 has no way to write, in a text that a host may have given
INVALID_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class JUnitCase:
    """One thing that was judged."""

    suite: str
    """The host."""
    group: str
    """What of it."""
    name: str
    seconds: float
    failure: str = ""
    """Why it failed; empty where it did not."""
    skipped: str = ""
    """Why it was not judged."""


def write_junit(path: str, cases: Iterable[JUnitCase]) -> None:
    """Write them to a file, a suite for each host.

    Raises:
        OSError: it cannot be written.
    """
    root = ElementTree.Element("testsuites")
    suites: dict[str, list[JUnitCase]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    for name, listed in suites.items():
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_escape_xml(name),
            tests=str(len(listed)),
            failures=str(sum(bool(case.failure) for case in listed)),
            skipped=str(sum(bool(case.skipped) for case in listed)),
            errors="0",
            time=f"{sum(case.seconds for case in listed):.3f}",
        )
        for case in listed:
            made = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_escape_xml(f"{case.suite}.{case.group}"),
                name=_escape_xml(case.name),
                time=f"{case.seconds:.3f}",
            )
            for kind, why in (("failure", case.failure), ("skipped", case.skipped)):
                if why:
                    ElementTree.SubElement(made, kind, message=_escape_xml(why))
    Path(path).write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _escape_xml(value: str) -> str:
    return INVALID_XML.sub("\N{REPLACEMENT CHARACTER}", value)
