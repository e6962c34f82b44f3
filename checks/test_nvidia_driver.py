"""The NVIDIA driver and the cards, for every origin of the driver."""

from checks import Drift, check
from checks.nvidia import card_health, driver_status, expect_no_differences, skip_without_cards
from checks.nvidia.driver_status import CardHolder
from checks.nvidia_smi import parse_smi_answer
from checks.remedy import instruction, restart_units
from checks.survey.answers import SurveyAnswers
from checks.survey.cards import CARDS, KernelLog
from checks.survey.kernel import KERNEL
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import Instance
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply
from rigwright.nvidia.cards import smi as nvidia_smi
from rigwright.nvidia.cards.smi import Gpu


def gpus(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> tuple[Gpu, ...]:
    """The cards that answer."""
    skip_without_cards(declared_cards)
    return parse_smi_answer(survey, "gpus", nvidia_smi.gpus)


def heard(log: KernelLog) -> list[str]:
    """The kernel log's messages about the cards since boot.

    Raises:
        Drift: it cannot be seen: silence is not health.
    """
    if log.blind:
        cure = instruction("remove Storage=none from /etc/systemd/journald.conf*") + restart_units("systemd-journald")
        raise Drift("the kernel's log since boot", log.blind, cure)
    return log.messages


@check(
    "N01",
    "each declared card answers and is the declared model",
    severity="critical",
    why="instances get cards by index: with one missing or swapped, they run on the wrong card or on none",
)
def test_cards_answer(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    expect_no_differences(driver_status.find_unanswering_cards(declared_cards, facts, gpus(survey, declared_cards)))


@check(
    "N02",
    "kernel module, libcuda and nvidia-smi have the same driver version",
    severity="critical",
    why="after an upgrade without a reboot, or with another libcuda in the way, no new process can use a card",
)
def test_one_version(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_supply: DriverSupply) -> None:
    skip_without_cards(declared_cards)
    kernel = survey.read(KERNEL)
    libraries = [real for name, _, real, _ in kernel.libraries if name == "libcuda.so.1"]
    try:
        smi = ", ".join(sorted({gpu.driver for gpu in gpus(survey, declared_cards)}))
    except Drift as drift:
        smi = drift.found
    module = kernel.loaded.get("nvidia", [""])[0]
    expect_no_differences(driver_status.find_version_differences(module, libraries, smi, driver_supply.tables.minimum))


@check(
    "N03",
    "the cards' device files exist, and nouveau is not loaded",
    severity="critical",
    why="without them CUDA finds no card and a server falls back to the CPU; nouveau keeps cards from the driver",
)
def test_device_files(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    skip_without_cards(declared_cards)
    kernel = survey.read(KERNEL)
    there = {one.path for one in kernel.devices if one.kind == "device"}
    minors = {one.address: str(one.minor) for one in kernel.cards if one.minor is not None}
    expect_no_differences(
        driver_status.find_device_differences(declared_cards, facts, there, minors, "nouveau" in kernel.loaded)
    )


@check(
    "N04",
    "nothing else uses the declared cards",
    severity="high",
    why="memory that other programs use is missing when a model loads, and shared cards are slow at times",
)
def test_cards_are_ours(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    reserved_gpus: tuple[int, ...],
    declared_instances: tuple[Instance, ...],
    facts: HostFacts,
) -> None:
    seen = gpus(survey, declared_cards)
    apps = parse_smi_answer(survey, "apps", nvidia_smi.apps)
    processes = {one.pid: CardHolder(one.name, one.cgroup) for one in survey.read(CARDS).processes}
    expect_no_differences(
        driver_status.find_holder_differences(
            declared_cards, reserved_gpus, declared_instances, facts, seen, apps, processes
        )
    )


@check(
    "N05",
    "persistence mode is on",
    severity="low",
    why="without it an idle card is shut down: the next start takes seconds longer, and its settings are lost",
)
def test_persistence(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], reserved_gpus: tuple[int, ...], facts: HostFacts
) -> None:
    expect_no_differences(
        card_health.find_persistence_differences(declared_cards, reserved_gpus, facts, gpus(survey, declared_cards))
    )


@check(
    "N06",
    "no card reports errors",
    severity="critical",
    why="a card that needs a reset or has lost memory gives wrong answers, or none",
)
def test_no_trouble(survey: SurveyAnswers, declared_cards: tuple[Card, ...], facts: HostFacts) -> None:
    """ECC's counters and the recovery action where a card has them; Xids of the kernel's log since boot.

    A container's log has none of the kernel's own messages: there this says nothing about Xids, also when it is green.
    """
    skip_without_cards(declared_cards)
    seen, warning = parse_smi_answer(survey, "gpus", nvidia_smi.those_that_answer)
    recovery = parse_smi_answer(survey, "recovery", nvidia_smi.recovery)
    expect_no_differences(
        card_health.find_card_faults(declared_cards, facts, seen, recovery, heard(survey.read(CARDS).log), warning)
    )


@check(
    "N07",
    "each card's PCIe link has the declared width, or full width",
    severity="low",
    why="a narrower link loads models more slowly, and cards that share a model slow each other down",
)
def test_links(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts
) -> None:
    expect_no_differences(
        card_health.find_pcie_differences(declared_cards, driver_entry, facts, gpus(survey, declared_cards))
    )
