"""Parsers of other programs' output, each with a real sample and what must hold of what it reads from a changed one."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from checks.survey.host import (
    apt,
    cards,
    common,
    containers,
    dpkg,
    health,
    kernel,
    packages,
    systemd_properties,
    weights,
)
from cli.lock_resolver import apt_archives
from cli.lock_resolver.distribution_packages import parse_addresses, source_suites
from cli.lock_resolver.downloads import DownloadUnavailable
from rigwright import apt_transactions
from rigwright.nvidia.cards import smi, smi_text_reports

DATA = Path(__file__).with_name("data") / "parsers"
KILLED = -9


@dataclass(frozen=True)
class ParserRow:
    """A parser of what a program prints."""

    sample: str
    """File in data/parsers, as the program printed it."""
    read: Callable[[str, int], Any]
    """Of the output and the exit status."""
    refuses: type[Exception] = RuntimeError
    """How it says that it cannot be read: then a check that needs it fails, and a deploy ends."""
    complete: bool = False
    """Whether it notices each value that is lost; a plain list cannot."""
    allowed: frozenset[int] = frozenset({0})
    """Exit statuses that are no failure."""
    end: str = "\n"
    moves: str | None = "\n"
    """Between what may come in another order; None where the order is what the output says."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The program's own words, in another language."""
    cut: tuple[int, ...] = (0, KILLED)
    """Exit statuses of a program whose output ends within a line."""
    nul: bool = True
    """Whether a NUL in it comes through to the parser: a shell's variable has none."""
    noisy: bool = True
    """Whether other programs can write between its lines; into a file they cannot."""
    costs: int = 1
    """How many times as long as others it takes."""


def program_parser(read: Callable[[], Any], program: str, **others: str) -> Callable[[str, int], Any]:
    """A parser that starts its program: this one prints the text, and others print samples."""

    def parse(text: str, status: int) -> Any:
        def run(words: tuple[str, ...], **_: Any) -> subprocess.CompletedProcess[bytes]:
            name = Path(words[0]).name
            if name != program:
                return subprocess.CompletedProcess(words, 0, (DATA / others[name.replace("-", "_")]).read_bytes(), b"")
            return subprocess.CompletedProcess(words, status, text.encode(errors="replace"), b"")

        with patch.object(common.subprocess, "run", run):
            return read()

    return parse


def text_parser(read: Callable[[str], Any]) -> Callable[[str, int], Any]:
    """A parser of a text whose program's exit status is judged before."""
    return lambda text, _: read(text)


def _parse_blocks(text: str) -> list[dict[str, list[str]]]:
    return [
        {name: value.split("\n") for name, value in block.items()}
        for block in systemd_properties.parse_blocks(common.require_whole("systemctl", text))
    ]


def _parse_show(names: list[str], wanted: Sequence[str], *options: str) -> dict[str, dict[str, list[str]]]:
    """Of each unit, the values of a property that it has several of, apart."""
    found = systemd_properties.read_properties(names, wanted, *options)
    return {unit: {key: value.split("\n") for key, value in rows.items()} for unit, rows in found.items()}


def _kernel_log() -> list[str]:
    with patch.object(cards.glob, "glob", lambda _: ["x"]), patch.object(cards, "ring", lambda *_: []):
        found = cards.log("x")
    if found["blind"]:
        raise RuntimeError(found["blind"])
    return list(found["messages"])  # type: ignore[call-overload]


def _parse_status(text: str) -> list[Any]:
    dpkg._packages.cache_clear()
    with patch.object(dpkg.common, "read", lambda *_, **__: text):
        # without `base`, which is by what lies on the disk
        return [(one.name, *one[2:-1], [*one.conffiles.items()]) for one in dpkg._packages("", ("x", 0, 0, 0))]


def _parse_simulation(text: str) -> dict[str, object]:
    found = apt_transactions.parse_simulation(text.splitlines(), apt_transactions.AptSimulation)
    if apt_transactions.INCOMPLETE in found.complaints:
        raise ValueError(apt_transactions.INCOMPLETE)
    return {"installed": [*found.installed], "removed": [*found.removed], "complaints": [*found.complaints]}


def _smi_parser(read: Callable[[int, str, str], Any]) -> Callable[[str, int], Any]:
    """A reader of nvidia-smi's: it gets the output without its last line's end, with timeout's own exit status."""

    def parse(text: str, status: int) -> Any:
        found = read(137 if status == KILLED else status, text.rstrip("\n"), "")
        return [*found] if isinstance(found, tuple) else found

    return parse


NAMES = ["curl", "libc6", "podman", "nginx"]


def _parse_links(status: int, text: str, complaint: str) -> dict[int, tuple[list[int], list[int]]]:
    """Links that are up, and all: the last of a card may be lost."""
    found = smi_text_reports.parse_nvlinks(status, text, complaint)
    return {card: ([*range(up)], [*range(links)]) for card, (up, links) in found.items()}


def controller_apt_parser(read: Callable[[str], Any]) -> Callable[[str, int], Any]:
    """A parser of what an apt of this machine's prints."""

    def parse(text: str, status: int) -> Any:
        done = subprocess.CompletedProcess(["apt-get"], status, text, "")
        with patch.object(apt_archives.subprocess, "run", lambda *_, **__: done):
            return read(apt_archives.run_program(["apt-get"]))

    return parse


UNITS = ["ssh.service", "two.service", "nobody-has.path"]
APT_WORDS = {
    "Installed:": "Installiert:",
    "Candidate:": "Installationskandidat:",
    "Version table:": "Versionstabelle:",
    "(none)": "(keine)",
}
SUMMARY = {
    "upgraded, ": "aktualisiert, ",
    "newly installed, ": "neu installiert, ",
    "to remove and": "zu entfernen und",
    "not upgraded.": "nicht aktualisiert.",
}
PARSERS: dict[str, ParserRow] = {
    "manager.read_properties: units of containers": ParserRow(
        "show-containers.txt",
        program_parser(lambda: _parse_show(UNITS, containers.PROPERTIES), "systemctl"),
        moves="\n\n",
    ),
    "manager.read_properties: units of weights": ParserRow(
        "show-weights.txt",
        program_parser(
            lambda: _parse_show(["tick.timer", "tick.service"], weights.PROPERTIES, "--timestamp=unix"), "systemctl"
        ),
        moves="\n\n",
    ),
    "manager.read_properties: health": ParserRow(
        "show-health.txt",
        program_parser(lambda: health.units(["ssh.service", "nobody-has.service"]), "systemctl"),
        complete=True,
        moves="\n\n",
    ),
    "manager.parse_blocks": ParserRow("show-all.txt", text_parser(_parse_blocks), cut=(), moves="\n\n"),
    "manager.parse_unit_names": ParserRow(
        "list-units.txt", text_parser(lambda text: systemd_properties.parse_unit_names(text, "system")), cut=()
    ),
    "manager.parse_call_groups": ParserRow(
        "syscall-filter.txt", text_parser(systemd_properties.parse_call_groups), cut=(), moves="\n\n"
    ),
    "manager.read_exposure": ParserRow(
        "security.txt",
        program_parser(lambda: systemd_properties.read_exposure(UNITS), "systemd-analyze"),
        allowed=frozenset({0, 1, 2, 124, KILLED}),
        moves="\n\n",
    ),
    "common.read_libraries": ParserRow(
        "ldconfig.txt",
        program_parser(lambda: common.read_libraries(""), "ldconfig"),
        complete=True,
        words={"libs found in cache": "Bibliotheken im Cache"},
    ),
    "apt.parse_policies": ParserRow(
        "policy.txt", program_parser(lambda: apt.read_policies(NAMES), "apt-cache"), moves=None, words=APT_WORDS
    ),
    "packages.policy": ParserRow(
        "policy.txt",
        program_parser(lambda: packages.policy(NAMES), "apt-cache", apt_get="indextargets.txt"),
        moves=None,
        words=APT_WORDS,
    ),
    "packages.policy: origins": ParserRow(
        "indextargets.txt", program_parser(lambda: packages.policy(NAMES), "apt-get", apt_cache="policy.txt")
    ),
    "kernel.modinfo": ParserRow(
        "modinfo.txt",
        program_parser(lambda: kernel.modinfo("6.1", ("virtio_net", "overlay")), "modinfo"),
        allowed=frozenset({0, 1, 127}),
        end="\0",
        moves=None,
    ),
    "dpkg.packages": ParserRow("status.txt", text_parser(_parse_status), cut=(0,), moves="\n\n", noisy=False),
    "cards.log": ParserRow("journal.txt", program_parser(_kernel_log, "journalctl"), allowed=frozenset({0, 1})),
    "simulation.parse": ParserRow(
        "simulate.txt", text_parser(_parse_simulation), ValueError, complete=True, nul=False, cut=(0,), words=SUMMARY
    ),
    "simulation.parse: removal": ParserRow(
        "simulate-remove.txt",
        text_parser(_parse_simulation),
        ValueError,
        complete=True,
        nul=False,
        cut=(0,),
        words=SUMMARY,
    ),
    "smi.gpus": ParserRow("smi-gpus.txt", _smi_parser(smi.gpus), ValueError, cut=(KILLED,)),
    "smi.recovery": ParserRow("smi-recovery.txt", _smi_parser(smi.recovery), ValueError, cut=(KILLED,)),
    "smi.apps": ParserRow("smi-apps.txt", _smi_parser(smi.apps), ValueError, cut=(KILLED,)),
    "reports.sections": ParserRow(
        "smi-memory.txt", _smi_parser(smi_text_reports.parse_sections), ValueError, cut=(KILLED,), moves=None
    ),
    "reports.links_up": ParserRow("smi-nvlink.txt", _smi_parser(_parse_links), ValueError, cut=(KILLED,), moves=None),
    "reports.joined": ParserRow(
        "smi-topology.txt", _smi_parser(smi_text_reports.parse_topology_matrix), ValueError, cut=(KILLED,), moves=None
    ),
    "packages.places": ParserRow(
        "indextargets-places.txt",
        controller_apt_parser(lambda text: source_suites(text, "debian", "bookworm", "trixie")),
        refuses=DownloadUnavailable,
    ),
    "packages.parse_addresses": ParserRow(
        "print-uris.txt", controller_apt_parser(parse_addresses), DownloadUnavailable
    ),
}
