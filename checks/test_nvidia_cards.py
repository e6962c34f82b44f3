"""What the cards are set to, how they are joined and how they are."""

from collections.abc import Mapping

import pytest

from checks import check
from checks.nvidia import (
    card_health,
    card_limits,
    card_links,
    deploy_record,
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
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.declared_cards_on_bus import answering_cards
from rigwright.nvidia.cards.smi import Gpu
from rigwright.nvidia.cards.smi_text_reports import parse_nvlinks, parse_sections, parse_topology_matrix


def answering(survey: SurveyAnswers, rig: Rig) -> Mapping[str, Gpu]:
    """The cards that answer, by address."""
    return {gpu.address: gpu for gpu in gpus(survey, rig)}


@check(
    "N21",
    "each card's power limit is the declared one",
    severity="high",
    why="cards that draw more than the box was built for trip its power supply under load",
)
def test_power(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    if rig.driver.power_w is None:
        pytest.skip("none is declared")
    expect_no_differences(card_limits.find_power_differences(rig.cards, rig.driver, facts, answering(survey, rig)))


@check(
    "N22",
    "no card is clocked higher than declared",
    severity="low",
    why="locked clocks prevent current spikes that a power limit does not catch",
)
def test_clocks(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    if rig.driver.clocks_mhz is None:
        pytest.skip("none are declared")
    expect_no_differences(card_limits.find_clock_differences(rig.cards, rig.driver, facts, answering(survey, rig)))


@check(
    "N23",
    "Resizable BAR is enabled on each card that supports it",
    severity="low",
    why="a firmware update can disable it; models load more slowly, and peer-to-peer copies need it",
)
def test_windows(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    expect_no_differences(
        card_limits.find_bar_differences(rig.cards, facts, parse_smi_answer(survey, "memory", parse_sections))
    )


@check(
    "N24",
    "each declared NVLink bridge connects its cards",
    severity="low",
    why="without it, traffic between two cards goes over PCIe, many times slower",
)
def test_bridges(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    skip_without_cards(rig.cards)
    if not rig.driver.nvlinks:
        pytest.skip("none is declared")
    numbers = {number: gpu.index for number, gpu in answering_cards(rig.cards, facts, gpus(survey, rig))}
    up, how = (
        parse_smi_answer(survey, "nvlinks", parse_nvlinks),
        parse_smi_answer(survey, "topology", parse_topology_matrix),
    )
    expect_no_differences(card_links.find_bridge_differences(rig.driver, numbers, up, how))


@check(
    "N25",
    "no service has GGML_CUDA_P2P in its environment",
    severity="critical",
    why="on cards that cannot do peer-to-peer, copies are silently lost and the answers are garbage",
)
def test_peers(survey: SurveyAnswers, rig: Rig) -> None:
    skip_without_cards(rig.cards)
    expect_no_differences(card_links.find_peer_differences(rig.instances, rig.driver, kernel_state(survey)))


@check(
    "N26",
    "the kernel log has no PCIe, memory or start-up errors of a card",
    severity="low",
    why="a bad seat, riser or slot causes corrected errors for weeks before the card falls off the bus",
)
def test_kernel_log(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    """A container's log has none of the kernel's own messages: there this says nothing, also when it is green."""
    skip_without_cards(rig.cards)
    ways = {one.address: one.way for one in survey.read(KERNEL).cards}
    expect_no_differences(card_health.find_kernel_complaints(rig.cards, facts, ways, heard(survey.read(CARDS).log)))


@check(
    "N27",
    "no card is overheating, and each has the same VBIOS as before",
    severity="low",
    why="a hot card is a slow one; another VBIOS means another card, or other limits",
)
def test_vitals(survey: SurveyAnswers, rig: Rig, facts: HostFacts) -> None:
    seen = answering(survey, rig)
    expect_no_differences(
        deploy_record.find_vital_differences(
            rig.cards, facts, seen, parse_smi_answer(survey, "temperature", parse_sections), read_driver_record(survey)
        )
    )
