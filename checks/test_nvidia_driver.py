"""The NVIDIA driver and the cards, whoever has installed them."""

from testinfra.host import Host

from checks import check
from checks.nvidia import no, with_cards
from checks.nvidia_smi import ask
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.nvidia.cards import health as nvidia_health
from rigwright.nvidia.cards import presence as nvidia_driver
from rigwright.nvidia.cards import smi as nvidia_smi
from rigwright.nvidia.cards.smi import Gpu


@check(
    "N01",
    "each declared card answers as what it is declared as",
    severity="critical",
    why="an instance gets its cards by number: with one away or another one there it runs on the wrong card or on none",
)
def test_cards_answer(rig: Rig, facts: HostFacts, gpus: tuple[Gpu, ...]) -> None:
    no(nvidia_driver.answering(rig, facts, gpus))


@check(
    "N02",
    "kernel module, libcuda and nvidia-smi are of one driver",
    severity="critical",
    why="after an upgrade without a reboot, or with another libcuda in the way, no new process can use a card",
)
def test_one_version(host: Host, rig: Rig) -> None:
    with_cards(rig)
    module = host.run("cat /sys/module/nvidia/version 2> /dev/null").stdout.strip()
    libraries = nvidia_driver.libraries([host.check_output("sh -c %s", nvidia_driver.libraries_script())])
    answer = host.run(nvidia_smi.question(*nvidia_smi.GPUS))
    try:
        seen = nvidia_smi.gpus(answer.rc, answer.stdout, answer.stderr)
        smi = ", ".join(sorted({gpu.driver for gpu in seen}))
    except ValueError as error:
        smi = str(error)
    no(nvidia_driver.versions(module, libraries, smi, rig.drivers.minimum))


@check(
    "N03",
    "the cards' device files are there, and nouveau is not",
    severity="critical",
    why="without them CUDA finds no card, and a server goes on on the CPU; nouveau keeps a card from the driver",
)
def test_device_files(host: Host, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    told = host.check_output("sh -c %s", nvidia_driver.devices_script(rig, facts))
    no(nvidia_driver.devices(rig, facts, [told]))


@check(
    "N04",
    "nobody else uses the declared cards",
    severity="high",
    why="what somebody else holds is missing when a model is loaded, and shared cards are slow at odd times",
)
def test_cards_are_ours(host: Host, rig: Rig, facts: HostFacts) -> None:
    with_cards(rig)
    # seen anew: a card's memory and the processes that have it belong to one moment
    gpus = ask(host, nvidia_smi.GPUS, nvidia_smi.gpus)
    apps = ask(host, nvidia_smi.APPS, nvidia_smi.apps)
    told = host.check_output("sh -c %s", nvidia_driver.processes_script(apps))
    processes = nvidia_driver.processes([told])
    no(nvidia_driver.holders(rig, facts, gpus, apps, processes))


@check(
    "N05",
    "persistence mode is on",
    severity="low",
    why="without it a card nobody uses is shut down: the next start takes seconds longer, and settings of it are lost",
)
def test_persistence(rig: Rig, facts: HostFacts, gpus: tuple[Gpu, ...]) -> None:
    no(nvidia_health.persistence(rig, facts, gpus))


@check(
    "N06",
    "no card reports trouble",
    severity="critical",
    why="a card that needs a reset or has lost memory gives wrong answers, or none",
)
def test_no_trouble(host: Host, rig: Rig, facts: HostFacts, gpus: tuple[Gpu, ...]) -> None:
    """ECC's counters and the recovery action where a card has them; Xids where the kernel's log can be read.

    A container has no kernel log: there this says nothing about Xids, also when it is green.
    """
    recovery = ask(host, nvidia_smi.RECOVERY, nvidia_smi.recovery)
    log = nvidia_health.xids([host.check_output("sh -c %s", nvidia_health.xids_script())])
    no(nvidia_health.trouble(rig, facts, gpus, recovery, log))


@check(
    "N07",
    "each card's PCI link has the declared lanes, or all",
    severity="low",
    why="a card with fewer lanes loads models more slowly, and cards that share one slow each other down",
)
def test_links(rig: Rig, facts: HostFacts, gpus: tuple[Gpu, ...]) -> None:
    no(nvidia_health.links(rig, facts, gpus))
