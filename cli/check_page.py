"""The page of `check --html`: results, a picture of each box, and its measured speeds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from checks import Drift
from checks.nvidia_smi import parse_smi_answer
from checks.pytest_frame import ChecksPlugin
from checks.survey_run import SurveyedHost
from cli.box_picture import PicturedBox
from cli.html_page import describe_box, describe_host, load_speeds, render_check_page
from cli.output_file import write_output
from rigwright.nvidia.cards.smi import Gpu, those_that_answer
from rigwright.nvidia.cards.smi_text_reports import parse_topology_matrix
from roles.root_shell import ConnectionGone


def write_check_page(file: str, frame: ChecksPlugin) -> None:
    """Write the page of a run.

    Raises:
        NotAsDeclared: the file cannot be written.
    """
    report = frame.build_report()
    hosts = [
        describe_host(
            *(one.name, number, one, picture_box(frame.look.hosts[one.name])),
            load_speeds(frame.look.inventory, one.name),
        )
        for number, one in enumerate(report.hosts, 1)
    ]
    write_output(file, render_check_page(report, hosts))


def picture_box(seen: SurveyedHost) -> PicturedBox | None:
    """The facts of a surveyed host; None where it has not answered."""
    survey = seen.survey
    if survey is None:
        return None
    gpus: tuple[Gpu, ...] = ()
    links: Mapping[tuple[int, int], str] = {}
    nodes: Mapping[str, int | None] = {}
    memory_kib = None
    if seen.rig.cards:
        # a card that does not answer has its check
        with suppress(Drift, ValueError):
            gpus, _ = parse_smi_answer(survey, "gpus", those_that_answer)
        with suppress(Drift, ValueError):
            links = parse_smi_answer(survey, "topology", parse_topology_matrix)
    with suppress(Drift, ValueError, AssertionError, OSError, ConnectionGone):
        nodes = {card.address: card.numa_node for card in seen.facts.pci_cards}
        memory_kib = seen.facts.memory_kib
    return describe_box(seen.rig, gpus, nodes, memory_kib, links)
