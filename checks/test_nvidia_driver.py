"""The NVIDIA driver and the cards, whoever has installed them."""

from checks import Drift, check
from checks.nvidia import health, no, presence, with_cards
from checks.nvidia.presence import Holder
from checks.nvidia_smi import answer
from checks.survey.cards import CARDS, Log
from checks.survey.kernel import KERNEL
from checks.survey.taken import Survey
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.nvidia.cards import smi as nvidia_smi
from rigwright.nvidia.cards.smi import Gpu


def gpus(survey: Survey, rig: Rig) -> tuple[Gpu, ...]:
    """The cards that answer."""
    with_cards(rig)
    return answer(survey, "gpus", nvidia_smi.gpus)


def heard(log: Log) -> list[str]:
    """What the kernel's log has of the cards since boot.

    Raises:
        Drift: it cannot be seen: silence is not health.
    """
    if log.blind:
        cure = "have journald keep messages (Storage= in /etc/systemd/journald.conf) and restart systemd-journald"
        raise Drift("the kernel's log since boot", log.blind, cure)
    return log.messages


@check(
    "N01",
    "each declared card answers and is the declared model",
    severity="critical",
    why="instances get cards by index: with one missing or swapped, they run on the wrong card or on none",
)
def test_cards_answer(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    no(presence.answering(rig, facts, gpus(survey, rig)))


@check(
    "N02",
    "kernel module, libcuda and nvidia-smi have the same driver version",
    severity="critical",
    why="after an upgrade without a reboot, or with another libcuda in the way, no new process can use a card",
)
def test_one_version(survey: Survey, rig: Rig) -> None:
    with_cards(rig)
    kernel = survey.read(KERNEL)
    libraries = [real for name, _, real, _ in kernel.libraries if name == "libcuda.so.1"]
    try:
        smi = ", ".join(sorted({gpu.driver for gpu in gpus(survey, rig)}))
    except Drift as drift:
        smi = drift.found
    module = kernel.loaded.get("nvidia", [""])[0]
    no(presence.versions(module, libraries, smi, rig.drivers.minimum))


@check(
    "N03",
    "the cards' device files exist, and nouveau is not loaded",
    severity="critical",
    why="without them CUDA finds no card and a server falls back to the CPU; nouveau keeps cards from the driver",
)
def test_device_files(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    kernel = survey.read(KERNEL)
    there = {one.path for one in kernel.devices if one.kind == "device"}
    minors = {one.address: one.minor for one in kernel.cards if one.minor}
    no(presence.devices(rig, facts, there, minors, "nouveau" in kernel.loaded))


@check(
    "N04",
    "nothing else uses the declared cards",
    severity="high",
    why="memory that others hold is missing when a model is loaded, and shared cards are slow at odd times",
)
def test_cards_are_ours(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    seen = gpus(survey, rig)
    apps = answer(survey, "apps", nvidia_smi.apps)
    processes = {one.pid: Holder(one.name, one.cgroup) for one in survey.read(CARDS).processes}
    no(presence.holders(rig, facts, seen, apps, processes))


@check(
    "N05",
    "persistence mode is on",
    severity="low",
    why="without it an idle card is shut down: the next start takes seconds longer, and its settings are lost",
)
def test_persistence(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    no(health.persistence(rig, facts, gpus(survey, rig)))


@check(
    "N06",
    "no card reports errors",
    severity="critical",
    why="a card that needs a reset or has lost memory gives wrong answers, or none",
)
def test_no_trouble(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    """ECC's counters and the recovery action where a card has them; Xids of the kernel's log since boot.

    A container's log has none of the kernel's own messages: there this says nothing about Xids, also when it is green.
    """
    with_cards(rig)
    seen, warning = answer(survey, "gpus", nvidia_smi.those_that_answer)
    recovery = answer(survey, "recovery", nvidia_smi.recovery)
    no(health.trouble(rig, facts, seen, recovery, heard(survey.read(CARDS).log), warning))


@check(
    "N07",
    "each card's PCIe link has the declared width, or full width",
    severity="low",
    why="a narrower link loads models more slowly, and cards that share a model slow each other down",
)
def test_links(survey: Survey, rig: Rig, facts: HostFacts) -> None:
    no(health.links(rig, facts, gpus(survey, rig)))
