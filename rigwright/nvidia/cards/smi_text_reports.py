"""The reports of nvidia-smi for people, as typed values: sections of a card's state, NVLinks, and connections."""

from __future__ import annotations

import re

from rigwright.nvidia.cards.smi import answer, bus_address

MEMORY = ("-q", "-d", "MEMORY")
TEMPERATURE = ("-q", "-d", "TEMPERATURE")
NVLINKS = ("nvlink", "--status")
TOPOLOGY = ("topo", "-m")
PEERS = ("topo", "-p2p", "r")
BAR1 = "BAR1 Memory Usage/Total"

CARD = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
SECTION = re.compile(r"    \S[^:]*")
ROW = re.compile(r"( +)([^:]+?) *: (.*)")
LINKED = re.compile(r"GPU ([0-9]+): ")
LINK = re.compile(r"Link ([0-9]+): (.*)")
UP = re.compile(r"[0-9.]+ GB/s")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
NUMBERED = re.compile(r"GPU([0-9]+)")


def parse_sections(status: int, stdout: str, stderr: str = "") -> dict[str, dict[str, str]]:
    """`SECTION/KEY` -> value of each card, by address, from MEMORY or TEMPERATURE.

    Raises:
        ValueError: nvidia-smi fails, names no card, or a line that names one is lost; a sentence that says how.
    """
    answer(status, stdout, stderr)
    found: dict[str, dict[str, str]] = {}
    card: dict[str, str] | None = None
    section = ""
    for line in stdout.splitlines():
        if matched := CARD.fullmatch(line.strip()):
            card, section = found.setdefault(bus_address(matched[1]), {}), ""
        elif card is not None and section and (row := ROW.fullmatch(line)):
            key = f"{section}/{row[2]}"
            if card.setdefault(key, row[3].strip()) != row[3].strip():
                raise ValueError(f"nvidia-smi reports {key!r} of a card twice")
        elif SECTION.fullmatch(line):
            section = line.strip()
    if not found:
        raise ValueError("nvidia-smi lists no card")
    return found


def parse_nvlinks(status: int, stdout: str, stderr: str = "") -> dict[int, tuple[int, int]]:
    """(links that are up, links) of each card by nvidia-smi's number, from NVLINKS; cards without links are left out.

    Raises:
        ValueError: nvidia-smi fails, or a line of it is lost; a sentence that says how.
    """
    found: dict[int, tuple[int, int]] = {}
    card = -1
    for line in answer(status, stdout, stderr):
        if matched := LINKED.match(line):
            card = int(matched[1])
        elif (matched := LINK.match(line)) and card >= 0:
            up, links = found.get(card, (0, 0))
            if int(matched[1]) != links:
                raise ValueError(f"nvidia-smi reports link {matched[1]} of card {card} after {links} of them")
            found[card] = (up + bool(UP.fullmatch(matched[2].strip())), links + 1)
    return found


def parse_topology_matrix(status: int, stdout: str, stderr: str = "") -> dict[tuple[int, int], str]:
    """The cell of each two cards, by nvidia-smi's numbers, in the table of TOPOLOGY ("NV4", "PHB", "SYS" and so on) or
    of PEERS ("OK", "CNS" and so on).

    Raises:
        ValueError: nvidia-smi fails, or prints no table; a sentence that says how.
    """
    answer(status, stdout, stderr)
    found = {}
    columns: list[str] = []
    for line in ESCAPES.sub("", stdout).splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if not columns and "GPU0" in cells[1:]:
            columns = cells
        elif columns and (row := NUMBERED.fullmatch(cells[0])):
            for column, cell in zip(columns, cells, strict=False):
                if matched := NUMBERED.fullmatch(column):
                    found[int(row[1]), int(matched[1])] = cell
    if not columns:
        raise ValueError("nvidia-smi prints no topology table")
    return found
