"""Instances that are served from images: the kernel's effective limits of their containers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import pytest

from checks import DEPLOY, Drift, ItemText, check, expect
from checks.drift_text import expect_none
from checks.remedy import Remedy, instruction, reinstall_packages, restart_units
from checks.survey.accounts import ACCOUNTS
from checks.survey.answers import SurveyAnswers
from checks.survey.containers import IMAGES, ObservedMount, RunningContainer
from checks.survey.kernel import KERNEL
from checks.survey.processes import PROCESSES, KernelProcess
from rigwright.engines import kind_of
from rigwright.engines.container_spec import ContainerSpec
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import TargetState
from rigwright.problems import format_count

# File systems that podman makes for a container, each of its own; the kernel's own are not writable.
MADE = {
    **dict.fromkeys(("/dev", "/dev/shm", "/run", "/tmp", "/var/tmp"), "tmpfs"),  # noqa: S108 # a container's
    **{"/dev/pts": "devpts", "/dev/mqueue": "mqueue", "/proc": "proc", "/sys": "sysfs", "/sys/fs/cgroup": "cgroup2"},
}
# The variables by which podman tells a container of itself.
TOLD = ("/etc/group", "/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/resolv.conf", "/run/.containerenv")
# Parts of the kernel's file systems that podman covers, or shows read-only (containers.conf(5), "base_hosts_file" and
# on; OCI runtime specification, maskedPaths and readonlyPaths).
COVERED = re.compile(r"/(proc|sys)/(?!self|[0-9]).+")
# The files that CDI brings along with a card: the driver's programs, libraries, settings and sockets.
DRIVER = re.compile(r".*(nvidia|libcuda|libnv|libGL|libEGL|libGLES|gsp_|vulkan|glvnd|egl|gbm)[^/]*|.*/nvidia.*")
DEVICES = frozenset(f"/dev/{name}" for name in ("full", "null", "pts/ptmx", "random", "tty", "urandom", "zero"))
OF_CARDS = re.compile(r"/dev/(nvidia(ctl|-uvm|-uvm-tools|-modeset)|nvidia-caps/.*)")
SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
# The variables that podman, and a shell before it, give to each container.
USUAL = frozenset(("container", "HOSTNAME", "HOME", "PATH", "TERM"))
CONMON = "/usr/bin/conmon"


@pytest.fixture(scope="session")
def declared(rig: Rig, desired: TargetState, contained: Instance) -> ContainerSpec:
    """The declared container of an instance."""
    service = kind_of(contained).service(rig, contained, desired.installations[contained.installed_as])
    return cast("ContainerSpec", service.container)


@pytest.fixture(scope="session")
def container_unit(survey: SurveyAnswers, contained: Instance, declared: ContainerSpec) -> RunningContainer:
    """Its container."""
    one = survey.read(IMAGES).units[contained.unit]
    if not one.first:
        raise Drift("a container", "none", DEPLOY)
    return one


@pytest.fixture(scope="session")
def restart(contained: Instance) -> Remedy:
    """The command that gives it a container as declared."""
    return restart_units(contained.unit)


@pytest.fixture(scope="session")
def within(survey: SurveyAnswers, contained: Instance, container_unit: RunningContainer) -> list[KernelProcess]:
    """The processes of its container, the first one first."""
    own = [one for one in survey.read(PROCESSES).units[contained.unit].processes if _inside(one, container_unit)]
    return sorted(own, key=lambda one: one.pid != container_unit.first)


def _inside(process: KernelProcess, found: RunningContainer) -> bool:
    return f"{process.group}/".startswith(f"{found.group}/")


@check(
    "I01",
    "the container runs the locked image",
    severity="critical",
    why="another image of the same name contains another program",
)
def test_image(container_unit: RunningContainer, restart: Remedy) -> None:
    expect_none([] if container_unit.locked else ["image not in the store"], "the locked image", DEPLOY)
    wrong = [path for path in container_unit.layers if path not in container_unit.locked]
    wrong += [f"none of {path}" for path in container_unit.locked if path not in container_unit.layers]
    expect(
        ItemText.from_items(wrong, shown=3),
        "the layers of the locked image",
        restart,
        holds=container_unit.layers == container_unit.locked,
    )


@check(
    "I02",
    "the container runs the declared command with the declared environment",
    severity="critical",
    why="an added option or variable changes the service",
)
def test_command(
    declared: ContainerSpec, container_unit: RunningContainer, within: list[KernelProcess], restart: Remedy
) -> None:
    first = within[0]
    expect(" ".join(first.words), " ".join(declared.command), restart, holds=tuple(first.words) == declared.command)
    image, cards = (
        {one.partition("=")[0]: one for one in told} for told in (container_unit.variables, container_unit.brought)
    )
    own = {name: f"{name}={value}" for name, value in declared.environment.items()}
    wanted, has = {**image, **own}, {name: f"{name}={value}" for name, value in first.environment.items()}
    wrong = [
        f"{name} {first.environment.get(name, 'unset')}, not {one.partition('=')[2]}"
        for name, one in wanted.items()
        if has.get(name) != one and (name in own or name not in cards or has.get(name) != cards[name])
    ]
    wrong += [f"the variable {name}" for name in sorted({*has} - {*wanted} - USUAL) if has[name] != cards.get(name)]
    expect_none(wrong, "the variables of the image, of its cards, and those declared", restart)


@check(
    "I03",
    "the container runs as the service user, without privileges",
    severity="critical",
    why="a service that is root, or can become root, endangers the box when it is compromised",
    blind="which system calls the seccomp filter blocks: the kernel reports only that a filter exists",
)
def test_privileges(
    survey: SurveyAnswers,
    service_accounts: ServiceAccounts,
    contained: Instance,
    within: list[KernelProcess],
    restart: Remedy,
) -> None:
    user = survey.read(ACCOUNTS).user(service_accounts.of_instance(contained))
    if user is None:
        raise Drift(f"the user {service_accounts.of_instance(contained)}", "none", DEPLOY)
    wrong = [f"process {one.pid} has {said}" for one in within for said in _privileged(one, user.uid, user.gid)]
    expect_none(wrong, f"user {user.uid} and its group, without privileges", restart)


def _privileged(process: KernelProcess, uid: int, gid: int) -> Iterable[str]:
    status = process.status
    if {*status["Uid"].split()} != {str(uid)}:
        yield f"the user ids {' '.join(status['Uid'].split())}"
    if {*status["Gid"].split(), *status["Groups"].split()} != {str(gid)}:
        yield f"the groups {' '.join([*status['Gid'].split(), *status['Groups'].split()])}"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status[kind], 16):
            yield f"capabilities ({kind} {status[kind]})"
    if status["NoNewPrivs"] != "1":
        yield "the right to gain privileges"
    if status["Seccomp"] != "2":
        yield "every system call"


@check(
    "I04",
    "the container has the declared mounts, and writes only to its own",
    severity="critical",
    why="a host directory is a way out of the container, and other weights are another model",
    blind="which driver files CDI has mounted into a container with cards",
)
def test_mounts(declared: ContainerSpec, container_unit: RunningContainer, restart: Remedy) -> None:
    wanted = {one.target: one.writable for one in declared.mounts}
    there = {one.target: one for one in container_unit.mounts}
    wrong: list[str] = [
        ItemText.without_value(f"another file than the host's at {place}") for place in container_unit.elsewhere
    ]
    wrong += [f"no mount at {place}" for place in wanted if place not in there]
    wrong += [said for one in container_unit.mounts for said in _strange(one, wanted, bool(declared.devices))]
    expect_none(wrong, "the declared mounts, writable only where they are its own", restart)


def _strange(one: ObservedMount, wanted: dict[str, bool], cards: bool) -> Iterable[str]:
    if one.target in wanted:
        if one.writable != wanted[one.target]:
            yield f"{one.target}, {'writable' if one.writable else 'read-only'}"
    elif one.target == "/":
        if one.kind != "overlay" or one.writable:
            yield f"a root that is {one.kind}{', writable' if one.writable else ''}"
    elif one.target in MADE:
        if one.kind != MADE[one.target] or (one.target in ("/sys", "/sys/fs/cgroup") and one.writable):
            yield f"{one.kind} at {one.target}"
        elif one.hosts and one.kind != "cgroup2":
            yield f"the host's own {one.kind} at {one.target}"
    elif one.writable or not (
        one.target in TOLD or COVERED.fullmatch(one.target) or (cards and DRIVER.fullmatch(one.target))
    ):
        yield f"{one.root} at {one.target}"


@check(
    "I05",
    "the container has no network, and its own namespaces",
    severity="critical",
    why="in the host's network the container listens and sends; in the host's other namespaces it sees its neighbours",
)
def test_namespaces(
    survey: SurveyAnswers, container_unit: RunningContainer, within: list[KernelProcess], restart: Remedy
) -> None:
    first = survey.read(PROCESSES).first
    wrong = [
        f"process {one.pid} in the host's {space} namespace"
        for one in within
        for space in SPACES
        if one.spaces.get(space) in (None, first.spaces.get(space))
    ]
    wrong += [f"the interface {name}" for name in container_unit.interfaces if name != "lo"]
    expect_none(wrong, "its own namespaces, and no interface but loopback", restart)


@check(
    "I06",
    "the container has the device files of its cards, and no others",
    severity="critical",
    why="without them it computes on the CPU or fails; with others it can use another instance's card, or a disk",
)
def test_devices(survey: SurveyAnswers, contained: Instance, container_unit: RunningContainer, restart: Remedy) -> None:
    cards = [one for index, one in enumerate(survey.read(KERNEL).cards) if index in contained.cards]
    own = {f"/dev/nvidia{one.minor}" for one in cards if one.minor is not None}
    # a spec names them where the driver's module for screens is loaded
    rendering = {f"/dev/dri/{name}" for one in cards for name in one.rendering}
    usual = [
        path for path in container_unit.devices if path in DEVICES or (contained.cards and OF_CARDS.fullmatch(path))
    ]
    wrong = [path for path in container_unit.devices if path not in (*usual, *own, *rendering)]
    wrong += [f"none of {path}" for path in sorted(own - {*container_unit.devices})]
    others = (f"{path}, which is another device on the host" for path in container_unit.forged)
    wrong += [*map(ItemText.without_value, others)]
    expect_none(wrong, "the device files of its cards", DEPLOY + restart)
    if len(own) != len(contained.cards):
        raise Drift(f"{format_count(len(contained.cards), 'card')} known to the driver", str(len(own)), DEPLOY)


@check(
    "I07",
    "conmon and podman, which run the container, are the distribution's",
    severity="critical",
    why="both run as root: a replaced one controls the box",
)
def test_conmon(survey: SurveyAnswers, contained: Instance, container_unit: RunningContainer, restart: Remedy) -> None:
    processes = survey.read(PROCESSES)
    wrong = []
    for one in processes.units[contained.unit].processes:
        if _inside(one, container_unit):
            continue
        if one.exe != CONMON:
            wrong.append(f"process {one.pid}, {one.exe}, also in its unit")
        for what, path in (entry.partition(" ")[::2] for entry in one.code):
            if what != "file" or path in processes.code:
                wrong.append(f"{path or 'code of no file'} in {one.exe}")
    cure = reinstall_packages("conmon")
    expect_none(wrong, f"{CONMON} with only its own libraries", cure + restart)


@check(
    "I08",
    "no containers are left over from earlier variants",
    severity="high",
    why="leftover containers hold cards and memory",
)
def test_nothing_is_left(survey: SurveyAnswers) -> None:
    cure = instruction("stop its unit, or end its processes, and remove the directory")
    expect_none(survey.read(IMAGES).beside, "only containers of declared instances", cure)
