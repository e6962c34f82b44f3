"""The settings of the cards, their connections and their state."""

from collections.abc import Mapping

import pytest

from checks import check
from checks.nvidia import (
    card_health,
    card_settings,
    driver_drift,
    expect_no_differences,
    kernel_state,
    read_driver_record,
    skip_without_cards,
)
from checks.nvidia_smi import parse_smi_answer
from checks.survey.answers import SurveyAnswers
from checks.survey.cards import CARDS
from checks.survey.kernel import KERNEL
from checks.test_nvidia_driver import gpus, heard
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import Instance
from rigwright.model.inventory_schema import DriverEntry
from rigwright.nvidia.cards.smi import Gpu
from rigwright.nvidia.cards.smi_text_reports import parse_nvlinks, parse_sections, parse_topology_matrix
from rigwright.nvidia.cards.topology import answering_cards


def answering(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> Mapping[str, Gpu]:
    """The cards that answer, by address."""
    return {gpu.address: gpu for gpu in gpus(survey, declared_cards)}


@check(
    "N21",
    "each card's power limit is the declared one",
    severity="high",
    why="cards that draw more power than planned trip the box's power supply under load",
)
def test_power(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts
) -> None:
    skip_without_cards(declared_cards)
    if driver_entry.power_w is None:
        pytest.skip("none is declared")
    expect_no_differences(
        card_settings.find_power_differences(declared_cards, driver_entry, facts, answering(survey, declared_cards))
    )


@check(
    "N22",
    "no card is clocked higher than declared",
    severity="low",
    why="locked clocks prevent current spikes that a power limit does not catch",
)
def test_clocks(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts
) -> None:
    skip_without_cards(declared_cards)
    if driver_entry.clocks_mhz is None:
        pytest.skip("none are declared")
    expect_no_differences(
        card_settings.find_clock_differences(declared_cards, driver_entry, facts, answering(survey, declared_cards))
    )


@check(
    "N23",
    "Resizable BAR is enabled on each card that supports it",
    severity="low",
    why="a firmware update can disable it; models load more slowly, and peer-to-peer copies need it",
)
def test_windows(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    skip_without_cards(declared_cards)
    expect_no_differences(
        card_settings.find_bar_differences(declared_cards, facts, parse_smi_answer(survey, "memory", parse_sections))
    )


@check(
    "N24",
    "each declared NVLink bridge connects its cards",
    severity="low",
    why="without it, traffic between two cards goes over PCIe, many times slower",
)
def test_bridges(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts
) -> None:
    skip_without_cards(declared_cards)
    if not driver_entry.nvlinks:
        pytest.skip("none is declared")
    numbers = {
        number: gpu.index for number, gpu in answering_cards(declared_cards, facts, gpus(survey, declared_cards))
    }
    up, how = (
        parse_smi_answer(survey, "nvlinks", parse_nvlinks),
        parse_smi_answer(survey, "topology", parse_topology_matrix),
    )
    expect_no_differences(card_settings.find_bridge_differences(driver_entry, numbers, up, how))


@check(
    "N25",
    "no service has GGML_CUDA_P2P in its environment",
    severity="critical",
    why="on cards that cannot do peer-to-peer, copies are silently lost and the answers are garbage",
)
def test_peers(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    declared_instances: tuple[Instance, ...],
    driver_entry: DriverEntry,
) -> None:
    skip_without_cards(declared_cards)
    expect_no_differences(card_settings.find_peer_differences(declared_instances, driver_entry, kernel_state(survey)))


@check(
    "N26",
    "the kernel log has no PCIe, memory or start-up errors of a card",
    severity="low",
    why="a bad seat, riser or slot causes corrected errors for weeks before the card falls off the bus",
)
def test_kernel_log(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    """A container's log has none of the kernel's own messages: there this says nothing, also when it is green."""
    skip_without_cards(declared_cards)
    ways = {one.address: one.path for one in survey.read(KERNEL).cards}
    expect_no_differences(
        card_health.find_kernel_complaints(declared_cards, facts, ways, heard(survey.read(CARDS).log))
    )


@check(
    "N27",
    "no card is overheating, and each has the same VBIOS as before",
    severity="low",
    why="a hot card is slow; another VBIOS means another card, or other limits",
)
def test_vitals(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    seen = answering(survey, declared_cards)
    expect_no_differences(
        driver_drift.find_vital_differences(
            declared_cards,
            facts,
            seen,
            parse_smi_answer(survey, "temperature", parse_sections),
            read_driver_record(survey),
        )
    )
